//! A job: one async function with an input, an output and retries.
//!
//! The mail server refuses twice and then takes the mail. The retry policy waits a little longer each time;
//! the server hears the same idempotency key at each try, so that a mail it has taken is not sent twice.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse::prelude::*;
use dormouse::{Engine, Error, EventKind};

/// Stands for a mail provider's API.
#[derive(Default)]
struct MailServer {
    taken: Mutex<HashMap<String, Mail>>,
}

#[derive(Serialize, Deserialize)]
struct Mail {
    to: String,
    text: String,
}

impl MailServer {
    fn send(&self, idempotency_key: &str, mail: Mail, attempt: u32) -> Result<(), BoxError> {
        if mail.to.ends_with("@nowhere.example") || attempt < 2 {
            return Err(format!("451 try again later ({})", mail.to).into());
        }
        self.taken.lock().expect("the server is up").insert(idempotency_key.to_owned(), mail);
        Ok(())
    }
}

struct SendMail {
    server: Arc<MailServer>,
}

impl Job for SendMail {
    const NAME: &'static str = "send_mail";
    const QUEUE: &'static str = "mail";
    const RUN_TIMEOUT: Option<Duration> = Some(Duration::from_secs(30));
    type Input = Mail;
    type Output = u32;

    async fn run(&self, mail: Mail, cx: &Context) -> Result<u32, BoxError> {
        // The id is the same at every try, also after a crash.
        self.server.send(&format!("mail-{}", cx.id()), mail, cx.attempt())?;
        Ok(cx.attempt() + 1)
    }

    fn retry(&self) -> Retry {
        Retry::times(4).backoff(Duration::from_millis(20), Duration::from_millis(200))
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let server = Arc::new(MailServer::default());
    let engine = Engine::open("sqlite::memory:")
        .await?
        .job(SendMail { server: server.clone() })
        .queue("mail", 8)
        .start()
        .await?;
    let client = engine.client();

    let mail = |to: &str| Mail { to: to.to_owned(), text: "Good morning".to_owned() };
    let id = client.start_job::<SendMail>(mail("alice@example.org")).await?;
    let tries = client.wait_job::<SendMail>(id, Duration::from_secs(10)).await?;
    println!("taken at try {tries}");
    assert_eq!(tries, 3);
    let taken = server.taken.lock().expect("the server is up").remove(&format!("mail-{id}"));
    assert_eq!(taken.expect("the mail").text, "Good morning");

    for event in client.history(id).await? {
        println!(
            "  {:>2} {} {}",
            event.seq,
            event.kind,
            event.data.map(|data| data.to_string()).unwrap_or_default()
        );
    }

    let id = client.start_job::<SendMail>(mail("bob@nowhere.example")).await?;
    let error = client.wait_job::<SendMail>(id, Duration::from_secs(10)).await.expect_err("four refusals");
    println!("{error}");
    assert!(matches!(error, Error::Ended { .. }));
    let retried =
        client.history(id).await?.iter().filter(|event| event.kind == EventKind::StepRetried).count();
    assert_eq!(retried, 3);
    engine.shutdown().await;
    Ok(())
}
