//! Connections for the verbs. The driver's own pool asks a connection whether it is alive whenever it comes back, which
//! doubles the round trips of statements as short as these; here a connection is asked when it has been idle.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// A connection that was idle for longer is tried before it is used: the server may have gone meanwhile.
const TRUSTED_FOR: Duration = Duration::from_secs(1);
/// A connection is not kept for longer, so that a server behind a changing name is found again.
const KEPT_FOR: Duration = Duration::from_secs(30 * 60);

#[derive(Clone)]
pub(super) struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    options: PgConnectOptions,
    /// What is said first on a new connection.
    set_up: Option<&'static str>,
    places: Arc<Semaphore>,
    idle: Mutex<Vec<Idle>>,
    limits: Limits,
}

/// How long things may take.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) acquire: Duration,
    pub(super) sign_of_life: Duration,
}

struct Idle {
    conn: PgConnection,
    born: Instant,
    since: Instant,
}

impl Pool {
    pub(super) fn new(
        options: PgConnectOptions,
        set_up: Option<&'static str>,
        connections_max: u32,
        limits: Limits,
    ) -> Self {
        let places = Arc::new(Semaphore::new(connections_max as usize));
        Self { inner: Arc::new(Inner { options, set_up, places, idle: Mutex::default(), limits }) }
    }

    /// A connection that seems to be alive.
    pub(super) async fn acquire(&self) -> Result<Lent, sqlx::Error> {
        timeout(self.inner.limits.acquire, self.find()).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }

    async fn find(&self) -> Result<Lent, sqlx::Error> {
        let place = self.inner.places.clone().acquire_owned().await;
        let place = place.map_err(|_| sqlx::Error::PoolClosed)?;
        loop {
            let idle = self.inner.idle().pop();
            let (conn, born) = match idle {
                None => (self.inner.connect().await?, Instant::now()),
                Some(idle) if idle.born.elapsed() > KEPT_FOR => continue,
                Some(Idle { mut conn, born, since }) => {
                    if since.elapsed() > TRUSTED_FOR {
                        let alive = timeout(self.inner.limits.sign_of_life, conn.ping()).await;
                        if !matches!(alive, Ok(Ok(()))) {
                            continue;
                        }
                    }
                    (conn, born)
                }
            };
            return Ok(Lent { conn: Some(conn), born, inner: self.inner.clone(), _place: place });
        }
    }

    /// Closes what is idle, and hands out no more.
    pub(super) async fn close(&self) {
        self.inner.places.close();
        let idle = std::mem::take(&mut *self.inner.idle());
        for Idle { conn, .. } in idle {
            // One that is gone needs no goodbye.
            let _ = timeout(self.inner.limits.sign_of_life, conn.close()).await;
        }
    }
}

impl Inner {
    async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        let mut conn = self.options.connect().await?;
        if let Some(words) = self.set_up {
            sqlx::raw_sql(words).execute(&mut conn).await?;
        }
        Ok(conn)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().expect("no code panics while it holds this lock")
    }
}

/// A connection in use. If its user stops waiting for an answer, the connection is in the middle of a statement,
/// perhaps forever: then it is closed, and its place in the pool is free at once.
pub(super) struct Lent {
    conn: Option<PgConnection>,
    born: Instant,
    inner: Arc<Inner>,
    _place: OwnedSemaphorePermit,
}

impl Deref for Lent {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.conn.as_ref().expect("it is lent until it is given back")
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.conn.as_mut().expect("it is lent until it is given back")
    }
}

impl Lent {
    /// Back to the pool, for the next one.
    pub(super) fn give_back(mut self) {
        if let Some(conn) = self.conn.take()
            && !self.inner.places.is_closed()
        {
            self.inner.idle().push(Idle { conn, born: self.born, since: Instant::now() });
        }
    }
}
