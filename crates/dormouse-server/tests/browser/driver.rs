//! A remote-controlled browser: chromedriver, by the WebDriver protocol, which is JSON over HTTP.
//! Every query waits, because pages take time to load. A query that times out fails the test and prints what the page
//! showed instead.

#![allow(unreachable_pub, reason = "a test target has no outside")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::SOON;

/// How long to wait between two looks at a page.
const POLL: std::time::Duration = std::time::Duration::from_millis(20);
/// What WebDriver calls the reference to an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

pub const TAB: char = '\u{e004}';
pub const ENTER: char = '\u{e007}';

/// A browser with its own profile, which ends when this is dropped.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: TempDir,
}

/// An element of the page that is shown.
pub struct Element<'a> {
    browser: &'a Browser,
    id: String,
}

impl Browser {
    pub fn open() -> Self {
        let profile = TempDir::new().expect("a directory for the profile");
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("no chromedriver ({error}): run `cargo xtask test`, which installs it")
            });
        let port = port_of(&mut driver);
        let mut browser = Self { driver, port, session: String::new(), _profile: profile };
        let opened = browser.ask("POST", "/session", &capabilities(browser._profile.path()));
        let opened = opened.unwrap_or_else(|error| panic!("the browser does not start: {error}"));
        browser.session = opened["sessionId"].as_str().expect("the session's id").to_owned();
        browser
    }

    pub fn go(&self, url: &str) {
        self.do_now("url", json!({ "url": url }));
    }

    pub fn url(&self) -> String {
        self.get("url").as_str().unwrap_or_default().to_owned()
    }

    /// The element that a CSS selector finds first, once there is one.
    pub fn find(&self, css: &str) -> Element<'_> {
        self.soon(&format!("there is no {css}"), || self.find_now(css))
    }

    pub fn is_there(&self, css: &str) -> bool {
        self.find_now(css).is_ok()
    }

    fn find_now(&self, css: &str) -> Result<Element<'_>, String> {
        let found = self.command("element", json!({ "using": "css selector", "value": css }))?;
        Ok(Element { browser: self, id: found[ELEMENT].as_str().expect("a reference").to_owned() })
    }

    /// Clicks as soon as the element can be clicked: a live page may redraw it just then.
    pub fn click(&self, css: &str) {
        self.soon(&format!("{css} cannot be clicked"), || self.find_now(css)?.do_now("click", json!({})));
    }

    /// Replaces the text of a field.
    pub fn fill(&self, css: &str, text: &str) {
        self.soon(&format!("{css} cannot be filled"), || {
            let field = self.find_now(css)?;
            field.do_now("clear", json!({}))?;
            field.do_now("value", json!({ "text": text }))
        });
    }

    /// The text that an element shows.
    pub fn text(&self, css: &str) -> String {
        self.soon(&format!("{css} has no text"), || self.find_now(css)?.get("text"))
    }

    /// Waits until an element shows this text.
    pub fn see(&self, css: &str, text: &str) {
        self.soon(&format!("{css} does not show {text:?}"), || {
            let shown: String = self.find_now(css)?.get("text")?;
            if shown.contains(text) { Ok(()) } else { Err(shown) }
        });
    }

    /// Presses a key, wherever the focus is.
    pub fn press(&self, key: char) {
        let strokes = ["keyDown", "keyUp"].map(|stroke| json!({ "type": stroke, "value": key }));
        self.do_now("actions", json!({ "actions": [{ "type": "key", "id": "keys", "actions": strokes }] }));
    }

    /// Types where the focus is.
    pub fn type_here(&self, text: &str) {
        let focused = self.get("element/active")[ELEMENT].as_str().expect("a reference").to_owned();
        let focused = Element { browser: self, id: focused };
        focused.do_now("value", json!({ "text": text })).expect("what has the focus takes text");
    }

    /// What a function body returns in the page.
    pub fn js(&self, script: &str) -> Value {
        self.do_now("execute/sync", json!({ "script": script, "args": [] }))
    }

    /// Waits until a function body returns true in the page.
    pub fn until(&self, script: &str) {
        self.soon(&format!("it never holds that {script}"), || {
            let value = self.command("execute/sync", json!({ "script": script, "args": [] }))?;
            if value == true { Ok(()) } else { Err(value.to_string()) }
        });
    }

    /// Emulates a setting of the system, such as `prefers-color-scheme`.
    pub fn pretend(&self, feature: &str, value: &str) {
        let params = json!({ "features": [{ "name": feature, "value": value }] });
        self.do_now("goog/cdp/execute", json!({ "cmd": "Emulation.setEmulatedMedia", "params": params }));
    }

    /// Sets the size of the page.
    pub fn resize(&self, width: u32, height: u32) {
        let params = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        let set = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": params });
        self.do_now("goog/cdp/execute", set);
    }

    /// The text of the page's open dialog, if there is one.
    pub fn question(&self) -> Option<String> {
        let asked = self.ask("GET", &self.path("alert/text"), &Value::Null).ok()?;
        Some(asked.as_str().unwrap_or_default().to_owned())
    }

    /// The browser's complaints since the last call: failed scripts, violations of the content security policy, failed
    /// loads.
    pub fn complaints(&self) -> Vec<String> {
        let log = self.do_now("se/log", json!({ "type": "browser" }));
        let entries = log.as_array().cloned().unwrap_or_default();
        let is_bad = |entry: &&Value| entry["level"] == "SEVERE" || entry["level"] == "WARNING";
        entries.iter().filter(is_bad).map(|entry| entry["message"].to_string()).collect()
    }

    /// Retries until it works. After the time limit, fails and prints what the page shows.
    #[track_caller]
    pub fn soon<T>(&self, otherwise: &str, mut attempt: impl FnMut() -> Result<T, String>) -> T {
        let started = Instant::now();
        loop {
            match attempt() {
                Ok(done) => return done,
                Err(error) if started.elapsed() > SOON => {
                    let (url, page) =
                        (self.url(), self.find_now("body").and_then(|body| body.get::<String>("text")));
                    panic!("{otherwise}: {error}\n{url} shows:\n{}", page.unwrap_or_default());
                }
                Err(_) => thread::sleep(POLL),
            }
        }
    }

    #[track_caller]
    fn do_now(&self, what: &str, how: Value) -> Value {
        self.command(what, how).unwrap_or_else(|error| panic!("{what}: {error}"))
    }

    #[track_caller]
    fn get(&self, what: &str) -> Value {
        self.ask("GET", &self.path(what), &Value::Null).unwrap_or_else(|error| panic!("{what}: {error}"))
    }

    fn command(&self, what: &str, how: Value) -> Result<Value, String> {
        self.ask("POST", &self.path(what), &how)
    }

    fn path(&self, what: &str) -> String {
        format!("/session/{}/{what}", self.session)
    }

    /// One request of the protocol, on a connection of its own.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let answer =
            exchange(self.port, method, path, body).map_err(|error| format!("chromedriver: {error}"))?;
        let mut answer: Value =
            serde_json::from_str(&answer).map_err(|error| format!("{error}: {answer}"))?;
        let value = answer["value"].take();
        match value["error"].as_str() {
            Some(error) => Err(format!("{error}: {}", value["message"].as_str().unwrap_or_default())),
            None => Ok(value),
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Without it, a browser would outlive its driver.
        let _ = self.ask("DELETE", &format!("/session/{}", self.session), &Value::Null);
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

impl Element<'_> {
    pub fn attribute(&self, name: &str) -> Option<String> {
        self.get(&format!("attribute/{name}")).ok().flatten()
    }

    fn get<T: serde::de::DeserializeOwned>(&self, what: &str) -> Result<T, String> {
        let value = self.browser.ask("GET", &self.path(what), &Value::Null)?;
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    fn do_now(&self, what: &str, how: Value) -> Result<(), String> {
        self.browser.ask("POST", &self.path(what), &how).map(drop)
    }

    fn path(&self, what: &str) -> String {
        self.browser.path(&format!("element/{}/{what}", self.id))
    }
}

/// The port that the driver prints.
fn port_of(driver: &mut Child) -> u16 {
    let mut said = BufReader::new(driver.stdout.take().expect("it is piped"));
    let (mut line, mut port) = (String::new(), None);
    while port.is_none() && said.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        let after =
            line.split_once("successfully on port ").map(|(_, port)| port.trim().trim_end_matches('.'));
        port = after.and_then(|port| port.parse().ok());
    }
    // It prints no more, but would fail if its output were closed.
    thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    port.unwrap_or_else(|| panic!("chromedriver does not say its port: {line}"))
}

fn capabilities(profile: &std::path::Path) -> Value {
    let args = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--window-size=1280,900",
    ];
    let mut args: Vec<_> = args.map(str::to_owned).into();
    args.push(format!("--user-data-dir={}", profile.display()));
    json!({ "capabilities": { "alwaysMatch": {
        "browserName": "chrome",
        "goog:chromeOptions": { "args": args },
        "goog:loggingPrefs": { "browser": "ALL" },
        // Dialogs stay open, so that a test can see whether there is one.
        "unhandledPromptBehavior": "ignore",
    } } })
}

fn exchange(port: u16, method: &str, path: &str, body: &Value) -> std::io::Result<String> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(2 * SOON))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len(),
    )?;
    let mut answer = BufReader::new(stream);
    let mut body_bytes = 0;
    loop {
        let mut line = String::new();
        answer.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                body_bytes = value.trim().parse().map_err(std::io::Error::other)?;
            }
            // The driver keeps the connection open, so read as many bytes as the header says.
            None if line.trim_end().is_empty() => break,
            _ => {}
        }
    }
    let mut body = vec![0; body_bytes];
    answer.read_exact(&mut body)?;
    String::from_utf8(body).map_err(std::io::Error::other)
}
