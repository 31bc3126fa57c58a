//! The dashboard in a real browser, on each store: what a person sees, and the effects of what they do.

#[path = "../http/kit.rs"]
#[allow(dead_code, reason = "the tests of the API use more of it")]
mod kit;
#[path = "../postgres/mod.rs"]
mod postgres;

mod driver;

/// Runs each of these tests on every store.
macro_rules! suite {
    ($($test:ident),+ $(,)?) => {
        mod sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(crate::kit::Database::sqlite()).await;
                }
            )+
        }
        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(crate::kit::Database::postgres()).await;
                }
            )+
        }
    };
}

mod crowded;
mod found;
mod hostile;
mod look;
mod walk;

use self::driver::Browser;
use self::kit::Site;

/// A browser in which this page is open.
fn open(site: &Site, path: &str) -> Browser {
    let browser = Browser::open();
    go(&browser, site, path);
    browser
}

/// Opens a page, and waits until it is live, if it ever is.
fn go(browser: &Browser, site: &Site, path: &str) {
    browser.go(&format!("http://{}{path}", site.address));
    live(browser);
}

/// Waits until the page receives changes, if it is a live page.
fn live(browser: &Browser) {
    browser.until("return !document.querySelector('[data-live]') || document.querySelector('#live').dataset.state === 'on'");
}
