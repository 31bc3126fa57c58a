//! Values between us and the database.

use jiff::Timestamp;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgRow, PgTypeInfo, PgValueRef, Postgres};
use sqlx::{Decode, Encode, Row, Type};

use crate::clock::micros;
use crate::store::Effects;
use crate::{Error, InstanceId, Json, Result, Status, Wake, When};

/// 2000-01-01, from where the database counts, in microseconds since 1970.
const POSTGRES_EPOCH_US: i64 = 946_684_800_000_000;
/// Before anything of ours, and yet a year that the database knows.
const EARLIEST_US: i64 = 0;

/// A `timestamptz`.
#[derive(Clone, Copy)]
pub(super) struct Moment(pub(super) Timestamp);

impl Type<Postgres> for Moment {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("timestamptz")
    }
}

impl Encode<'_, Postgres> for Moment {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let us = self.0.as_microsecond().max(EARLIEST_US) - POSTGRES_EPOCH_US;
        Encode::<Postgres>::encode(us, buffer)
    }
}

impl<'r> Decode<'r, Postgres> for Moment {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        let us = i64::from_be_bytes(value.as_bytes()?.try_into()?);
        // The infinities, which only another hand can have written, are held at the ends of time.
        let moment = Timestamp::from_microsecond(us.saturating_add(POSTGRES_EPOCH_US));
        Ok(Self(moment.unwrap_or(if us < 0 { Timestamp::MIN } else { Timestamp::MAX })))
    }
}

/// A [`When`] in the two columns it is sent in: microseconds since 1970, or from now.
pub(super) fn when(when: Option<When>) -> (Option<i64>, Option<i64>) {
    match when {
        None => (None, None),
        Some(When::At(at)) => (Some(at.as_microsecond().max(0)), None),
        Some(When::In(duration)) => (None, Some(micros(duration))),
    }
}

/// Columns in the types of the library.
pub(super) trait Columns {
    fn value<'r, T: Decode<'r, Postgres> + Type<Postgres>>(&'r self, name: &str) -> Result<T>;

    fn moment(&self, name: &str) -> Result<Timestamp>;

    fn moment_or_none(&self, name: &str) -> Result<Option<Timestamp>>;

    /// A `json` column that the statement casts to text.
    fn json(&self, name: &str) -> Result<Json>;

    fn json_or_none(&self, name: &str) -> Result<Option<Json>>;

    fn number<T: TryFrom<i64>>(&self, name: &str) -> Result<T>;

    fn status(&self, name: &str) -> Result<Status>;

    fn wake(&self, name: &str) -> Result<Option<Wake>>;

    /// The columns that hold a verb's effects.
    fn effects(&self) -> Result<Effects>;
}

impl Columns for PgRow {
    fn value<'r, T: Decode<'r, Postgres> + Type<Postgres>>(&'r self, name: &str) -> Result<T> {
        Ok(self.try_get(name)?)
    }

    fn moment(&self, name: &str) -> Result<Timestamp> {
        Ok(self.value::<Moment>(name)?.0)
    }

    fn moment_or_none(&self, name: &str) -> Result<Option<Timestamp>> {
        Ok(self.value::<Option<Moment>>(name)?.map(|moment| moment.0))
    }

    fn json(&self, name: &str) -> Result<Json> {
        Ok(Json::trusted(self.value::<Box<str>>(name)?))
    }

    fn json_or_none(&self, name: &str) -> Result<Option<Json>> {
        Ok(self.value::<Option<Box<str>>>(name)?.map(Json::trusted))
    }

    fn number<T: TryFrom<i64>>(&self, name: &str) -> Result<T> {
        // A column is an integer or a bigint: only the wider of the two takes both.
        let number = match self.try_get::<i32, _>(name) {
            Ok(number) => number.into(),
            Err(_) => self.try_get::<i64, _>(name)?,
        };
        T::try_from(number).map_err(|_| strange(name, number))
    }

    fn status(&self, name: &str) -> Result<Status> {
        let word: &str = self.value(name)?;
        word.parse().map_err(|_| strange(name, word))
    }

    fn wake(&self, name: &str) -> Result<Option<Wake>> {
        let word: Option<&str> = self.value(name)?;
        word.map(|word| word.parse().map_err(|_| strange(name, word))).transpose()
    }

    fn effects(&self) -> Result<Effects> {
        let ids = |name| -> Result<Vec<InstanceId>> {
            let ids: Option<Vec<i64>> = self.value(name)?;
            Ok(ids.unwrap_or_default().into_iter().map(InstanceId).collect())
        };
        let queues: Option<Vec<String>> = self.value("queues")?;
        Ok(Effects {
            queues: queues.unwrap_or_default().into_iter().collect(),
            wake_at: self.moment_or_none("wake_at")?,
            ended: ids("ended")?,
            cancel: ids("cancel")?,
            braked: false,
            held_back: false,
            mail: false,
        })
    }
}

/// A value that no verb of ours writes.
pub(super) fn strange(column: &str, value: impl std::fmt::Debug) -> Error {
    Error::StrangeValue(format!(
        "{value:?} in column {column:?}: it was changed by hand, or by a newer version"
    ))
}

/// The rows of a list that can be read. One that cannot is left out and named in the log, so that it hides no other.
pub(super) fn readable<T>(rows: &[PgRow], read: impl Fn(&PgRow) -> Result<T>) -> Result<Vec<T>> {
    let readable = |row: &PgRow| match read(row) {
        Err(Error::StrangeValue(reason)) => {
            let id: Option<i64> = row.try_get("id").ok();
            tracing::error!(id, reason, "a stored row cannot be read and is skipped");
            None
        }
        other => Some(other),
    };
    rows.iter().filter_map(readable).collect()
}

/// Our own JSON from the database, in its type.
pub(super) fn parse<T: serde::de::DeserializeOwned>(what: &'static str, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|source| Error::InvalidJson { what, source })
}

/// A batch as the JSON text that a verb takes.
pub(super) fn batch<T: serde::Serialize>(rows: &[T]) -> Result<String> {
    serde_json::to_string(rows).map_err(|source| Error::InvalidJson { what: "batch", source })
}
