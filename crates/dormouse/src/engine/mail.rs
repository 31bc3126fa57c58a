//! Delivers mail that outcomes have sent. A poke after the commit starts it; a poll finds what a crash left behind.

use std::sync::Arc;

use super::{FAULT_PAUSE, Shared};
use crate::store::{DueMail, MailBounds, MailDue, Post, Posted, Posting, Written};
use crate::{Error, Result, When};

/// Pieces delivered in one write.
const POST_ROWS_MAX: usize = 128;
/// How often a piece is tried that the store fails to deliver, while it delivers others.
const TRIES_MAX: u32 = 12;

pub(super) async fn run(shared: Arc<Shared>) {
    let mut pokes = shared.store.hub().mail();
    loop {
        pokes.borrow_and_update();
        let MailDue { mail, next } = match shared.store.mail_due(POST_ROWS_MAX).await {
            Ok(due) => due,
            Err(error) => {
                tracing::warn!(%error, "could not look for mail; trying again");
                tokio::time::sleep(FAULT_PAUSE).await;
                continue;
            }
        };
        let found = mail.len();
        let progressed = !mail.is_empty() && deliver(&shared, mail).await;
        // What another worker delivers at this moment is not worth a second look at once.
        if progressed && found == POST_ROWS_MAX {
            continue;
        }
        let next = if progressed { None } else { next };
        let moment = async {
            match next {
                Some(at) => shared.store.sleep(When::At(at)).await,
                None if progressed => {}
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = moment => {}
            _ = pokes.changed() => {}
            () = tokio::time::sleep(shared.config.poll) => {}
        }
    }
}

/// Delivers pieces of mail, and returns whether any was delivered, given up or put off.
async fn deliver(shared: &Shared, mail: Vec<DueMail>) -> bool {
    let (progressed, unknown) = deliver_known(shared, mail).await;
    // What it is for may have been started just now, by mail that was sent before it.
    let (more, nobody) = deliver_known(shared, unknown).await;
    let batch: Vec<_> = nobody.iter().map(|piece| (piece, Posting::Deliver)).collect();
    progressed | more | post_all(shared, batch).await
}

/// Delivers pieces of mail, but for signals that a machine might refuse and whose target is not there: those come back.
async fn deliver_known(shared: &Shared, mail: Vec<DueMail>) -> (bool, Vec<DueMail>) {
    let (mut known, mut unknown) = (Vec::with_capacity(mail.len()), Vec::new());
    for piece in mail {
        match checked(shared, &piece).await {
            Ok(true) => known.push((piece, Posting::Deliver)),
            Ok(false) => unknown.push(piece),
            Err(error @ (Error::UndeclaredSignal { .. } | Error::PayloadRefused { .. })) => {
                known.push((piece, Posting::Refuse(error.to_string())));
            }
            Err(error) => {
                tracing::warn!(%error, id = %piece.id, "could not check a piece of mail; trying again");
                known.push((piece, Posting::PutOff));
            }
        }
    }
    (post_all(shared, known.iter().map(|(piece, how)| (piece, how.clone())).collect()).await, unknown)
}

/// Hands pieces of mail to the store; one by one, if it fails to take them together.
async fn post_all(shared: &Shared, batch: Vec<(&DueMail, Posting)>) -> bool {
    if batch.is_empty() {
        return false;
    }
    let posts = batch.iter().map(|(piece, how)| Post { id: piece.id, how: how.clone() }).collect();
    match post(shared, posts).await {
        Ok(progressed) => progressed,
        Err(error) => {
            tracing::warn!(%error, pieces = batch.len(), "could not deliver mail: trying its pieces one by one");
            let mut progressed = false;
            for (piece, how) in batch {
                progressed |= deliver_alone(shared, piece, Post { id: piece.id, how }).await;
            }
            progressed
        }
    }
}

/// Delivers one piece. One that a healthy store cannot deliver is put off, and given up in the end.
async fn deliver_alone(shared: &Shared, piece: &DueMail, one: Post) -> bool {
    let error = match post(shared, vec![one]).await {
        Ok(progressed) => return progressed,
        Err(error) => error,
    };
    tracing::warn!(%error, id = %piece.id, tries = piece.tries, "a piece of mail could not be delivered");
    tokio::time::sleep(FAULT_PAUSE).await;
    let how = match error.is_transient() || piece.tries < TRIES_MAX {
        true => Posting::PutOff,
        false => Posting::Refuse(format!("it could not be delivered: {error}")),
    };
    post(shared, vec![Post { id: piece.id, how }]).await.unwrap_or(false)
}

async fn post(shared: &Shared, batch: Vec<Post>) -> Result<bool> {
    let bounds = MailBounds::from(&shared.config.limits);
    let Written { value: posted, effects } = shared.store.post(batch, bounds).await?;
    shared.store.poke(&effects);
    let count = |what: Posted| posted.iter().filter(|posted| **posted == what).count();
    let (delivered, undelivered) = (count(Posted::Delivered), count(Posted::Undelivered));
    metrics::counter!("dormouse_mail_delivered_total").increment(delivered as u64);
    metrics::counter!("dormouse_mail_undelivered_total").increment(undelivered as u64);
    if undelivered > 0 {
        tracing::warn!(undelivered, "mail could not be delivered; the histories of its senders say why");
    }
    Ok(count(Posted::Gone) < posted.len())
}

/// Refuses a signal that the machine of its target does not take. The target may have started after it was sent. Returns
/// false if that depends on the target, and it is not there.
async fn checked(shared: &Shared, piece: &DueMail) -> Result<bool> {
    let Some((to, signal)) = &piece.signal else { return Ok(true) };
    let client = shared.client.in_namespace(&piece.namespace)?;
    client.check_all(&[(to.clone(), signal.clone())]).await
}
