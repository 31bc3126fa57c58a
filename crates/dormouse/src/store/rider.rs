//! A step's own writes, which the commit of its outcome carries: both happen, or neither.

use std::any::Any;

/// Writes of a kind that only the store knows which made them.
pub struct Rider(Box<dyn Any + Send>);

impl Rider {
    /// Wraps what a store will know again.
    pub fn new<T: Any + Send>(own: T) -> Self {
        Self(Box::new(own))
    }

    /// What the store put in, if it is of that kind.
    pub fn get_mut<T: Any>(&mut self) -> Option<&mut T> {
        self.0.downcast_mut()
    }

    /// What the store put in.
    ///
    /// # Panics
    /// If it is of another kind: riders come back to the store that made them.
    pub fn into<T: Any>(self) -> T {
        *self.0.downcast().expect("a rider comes back to the store that made it")
    }
}

impl std::fmt::Debug for Rider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rider")
    }
}
