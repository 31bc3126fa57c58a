//! Resume tokens: the holder of a token may answer one interaction, once, until the token expires.
//!
//! A token is `key id . claims . signature`, the latter two in base64url. The claims say what it is for; the signature
//! (HMAC-SHA-256) proves that we made it.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::unit::{Proof, Refusal};
use crate::{Error, InstanceId, Interaction, InteractionId, Result, UnitId};

/// The shortest secret that is accepted.
const SECRET_BYTES_MIN: usize = 32;

/// Makes and checks resume tokens. It signs with the newest key, and accepts older ones.
#[derive(Clone)]
pub struct Tokens {
    keys: Vec<(String, Box<[u8]>)>,
}

/// The claims of a token, with short names.
#[derive(Serialize, Deserialize)]
struct Claims {
    #[serde(rename = "n")]
    namespace: String,
    #[serde(rename = "x")]
    interaction: InteractionId,
    #[serde(rename = "i")]
    instance: InstanceId,
    #[serde(rename = "u")]
    unit: UnitId,
    #[serde(rename = "s")]
    sends: u32,
    #[serde(rename = "e")]
    expires_s: i64,
}

/// A resume token that was checked: its signature is one of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The namespace of the interaction.
    pub namespace: String,
    /// The interaction that it answers.
    pub interaction: InteractionId,
    /// What it was made for, to compare with the interaction.
    pub(crate) proof: Proof,
}

impl Tokens {
    /// Makes and checks tokens with this key. Its id is part of the token, so that a later key can replace it.
    pub fn new(key_id: &str, secret: &[u8]) -> Result<Self> {
        Self { keys: Vec::new() }.and(key_id, secret)
    }

    /// Also accepts tokens that were made with this older key. Use it to rotate keys.
    pub fn and(mut self, key_id: &str, secret: &[u8]) -> Result<Self> {
        let refuse = |reason: String| Err(Error::InvalidConfig(reason));
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if key_id.is_empty() || key_id.len() > 32 || !key_id.chars().all(fits) {
            return refuse("a token key's id is 1 to 32 letters, digits, `-` or `_`".to_owned());
        }
        if secret.len() < SECRET_BYTES_MIN {
            return refuse(format!(
                "a token secret under {SECRET_BYTES_MIN} bytes can be guessed; use a longer one"
            ));
        }
        if self.keys.iter().any(|(id, _)| id == key_id) {
            return refuse(format!("the token key {key_id:?} is given twice"));
        }
        self.keys.push((key_id.to_owned(), secret.into()));
        Ok(self)
    }

    /// Makes a token for one interaction as it is being sent. It expires at this moment, or at the interaction's
    /// deadline if that is nearer.
    pub fn issue(&self, interaction: &Interaction, expires_at: Timestamp) -> String {
        let expires_at = interaction.deadline.map_or(expires_at, |deadline| deadline.min(expires_at));
        let claims = Claims {
            namespace: interaction.namespace.clone(),
            interaction: interaction.id,
            instance: interaction.instance,
            unit: interaction.unit,
            sends: interaction.sends,
            expires_s: expires_at.as_second(),
        };
        let claims = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&claims).expect("claims can be written"));
        let (key_id, secret) = self.keys.first().expect("there is a key from the start");
        let signature = URL_SAFE_NO_PAD.encode(mac(secret, key_id, &claims).finalize().into_bytes());
        format!("{key_id}.{claims}.{signature}")
    }

    /// Checks that we made a token, and returns what it is for. The store decides whether it may still answer when it
    /// is used ([`crate::Client::complete_opened`]).
    pub fn open(&self, token: &str) -> Result<Opened> {
        let forged = || Error::TokenRefused(Refusal::Forged);
        let mut parts = token.splitn(3, '.');
        let (Some(key_id), Some(claims), Some(signature)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(forged());
        };
        let (_, secret) = self.keys.iter().find(|(id, _)| id == key_id).ok_or_else(forged)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| forged())?;
        // In constant time.
        mac(secret, key_id, claims).verify_slice(&signature).map_err(|_| forged())?;
        let claims = URL_SAFE_NO_PAD.decode(claims).map_err(|_| forged())?;
        let claims: Claims = serde_json::from_slice(&claims).map_err(|_| forged())?;
        let Claims { namespace, interaction, instance, unit, sends, expires_s } = claims;
        let expires_at = Timestamp::from_second(expires_s).map_err(|_| forged())?;
        Ok(Opened { namespace, interaction, proof: Proof { instance, unit, sends, expires_at } })
    }
}

/// Parses keys from an environment variable: `id:secret`, the secret in base64, the newest first, separated by commas.
impl FromStr for Tokens {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        // The input is a secret, so the error does not quote it.
        let refuse = || {
            let told = "token keys are written `id:secret`, the secret in base64, with commas between";
            Error::InvalidConfig(told.to_owned())
        };
        text.split(',').try_fold(Self { keys: Vec::new() }, |tokens, key| {
            let (id, secret) = key.trim().split_once(':').ok_or_else(refuse)?;
            let secret = STANDARD.decode(secret).or_else(|_| STANDARD_NO_PAD.decode(secret));
            tokens.and(id, &secret.map_err(|_| refuse())?)
        })
    }
}

fn mac(secret: &[u8], key_id: &str, claims: &str) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key of any length will do");
    mac.update(key_id.as_bytes());
    mac.update(b".");
    mac.update(claims.as_bytes());
    mac
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<&str> = self.keys.iter().map(|(id, _)| id.as_str()).collect();
        f.debug_struct("Tokens").field("keys", &ids).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InteractionStatus, Json};

    const OLD: &[u8] = b"an old secret of thirty-two bytes";
    const NEW: &[u8] = b"a new secret of thirty-three bytes";

    #[test]
    fn a_token_says_what_it_was_made_for() {
        let tokens = Tokens::new("k1", OLD).expect("a key");
        let Opened { namespace, interaction: id, proof } =
            tokens.open(&tokens.issue(&interaction(), moment())).expect("our own");
        let expires_at = moment();
        let expected = Proof { instance: InstanceId(2), unit: UnitId(3), sends: 4, expires_at };
        assert_eq!((namespace.as_str(), id, proof), ("shop", InteractionId(1), expected));
        let sooner = moment() - std::time::Duration::from_secs(60);
        let late = Interaction { deadline: Some(sooner), ..interaction() };
        let Opened { proof, .. } = tokens.open(&tokens.issue(&late, moment())).expect("our own");
        assert_eq!(proof.expires_at, sooner, "it is no good after the deadline");
    }

    #[test]
    fn a_token_that_was_altered_by_one_bit_is_refused() {
        let tokens = Tokens::new("k1", OLD).expect("a key");
        let token = tokens.issue(&interaction(), moment());
        for place in 0..token.len() {
            for bit in 0..7 {
                let mut altered = token.clone().into_bytes();
                altered[place] ^= 1 << bit;
                let Ok(altered) = String::from_utf8(altered) else { continue };
                assert!(is_forged(tokens.open(&altered)), "{place} {bit}");
            }
        }
        for nonsense in ["", ".", "..", "k1", "k1..", "k1.e30.", "k2.e30.e30"] {
            assert!(is_forged(tokens.open(nonsense)), "{nonsense:?}");
        }
    }

    #[test]
    fn an_older_key_still_checks_and_a_foreign_one_does_not() {
        let token = Tokens::new("k1", OLD).expect("a key").issue(&interaction(), moment());
        let rotated = Tokens::new("k2", NEW).and_then(|tokens| tokens.and("k1", OLD)).expect("two keys");
        assert!(rotated.open(&token).is_ok());
        assert!(rotated.issue(&interaction(), moment()).starts_with("k2."));
        assert!(is_forged(Tokens::new("k2", NEW).expect("a key").open(&token)), "its key is gone");
        assert!(is_forged(Tokens::new("k1", NEW).expect("a key").open(&token)), "of the same name");
    }

    #[test]
    fn a_weak_or_unclear_key_is_refused_and_a_secret_is_never_shown() {
        assert!(Tokens::new("k1", b"short").is_err());
        assert!(Tokens::new("k.1", OLD).is_err());
        assert!(Tokens::new("k1", OLD).and_then(|tokens| tokens.and("k1", NEW)).is_err());
        let shown = format!("{:?}", Tokens::new("k1", OLD).expect("a key"));
        assert!(shown.contains("k1") && !shown.contains("secret"), "{shown}");
    }

    #[test]
    fn keys_are_read_as_they_are_kept_and_a_mistake_repeats_no_secret() {
        let kept = format!("k2:{}, k1:{}", STANDARD.encode(NEW), STANDARD_NO_PAD.encode(OLD));
        let tokens: Tokens = kept.parse().expect("two keys");
        assert!(tokens.issue(&interaction(), moment()).starts_with("k2."));
        assert!(tokens.open(&Tokens::new("k1", OLD).expect("a key").issue(&interaction(), moment())).is_ok());
        for wrong in ["", "k1", "k1:sesame!", "k1:c2VzYW1l", &format!("{kept},k1:{}", STANDARD.encode(OLD))] {
            let told = wrong.parse::<Tokens>().expect_err("a mistake").to_string();
            assert!(!told.contains("sesame") && !told.contains("c2V"), "{told}");
        }
    }

    fn is_forged<T>(checked: Result<T>) -> bool {
        matches!(checked, Err(Error::TokenRefused(Refusal::Forged)))
    }

    fn moment() -> Timestamp {
        "2030-01-01T00:00:00Z".parse().expect("a moment")
    }

    fn interaction() -> Interaction {
        Interaction {
            id: InteractionId(1),
            unit: UnitId(3),
            item: 0,
            instance: InstanceId(2),
            namespace: "shop".to_owned(),
            machine: "m".to_owned(),
            version: 1,
            step: "s".to_owned(),
            transport: "t".to_owned(),
            status: InteractionStatus::Pending,
            idempotency_key: "k".to_owned(),
            correlation_id: None,
            sends: 4,
            opened_at: None,
            deadline: None,
            send_at: None,
            dispatched_at: None,
            resolved_at: None,
            assignee: None,
            assigned_until: None,
            for_assignee: None,
            for_group: None,
            trace: None,
            answered_by: None,
            answered: false,
            error: None,
            request: Json::null(),
            output: None,
        }
    }
}
