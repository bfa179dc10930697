//! Which calls of hooks go for their age.

use rusqlite::{Connection, Result, ToSql, params_from_iter};

use super::HookOutbox;
use crate::request::Millis;

/// The calls from before a time that nobody will make: those that were given up, and all of hooks that are configured no
/// more.
#[derive(Debug)]
pub struct Expiry<'o> {
    before: i64,
    hooks: Vec<&'o str>,
}

impl<'o> Expiry<'o> {
    /// Without an outbox there are no hooks.
    pub fn new(outbox: Option<&'o HookOutbox>, before: Millis) -> Self {
        let rules = outbox.map_or(&[][..], |outbox| &outbox.rules);
        Self {
            before: before.cast_signed(),
            hooks: rules.iter().map(|rule| rule.hook.as_str()).collect(),
        }
    }

    /// Whether there are some.
    pub fn is_any(&self, connection: &Connection) -> Result<bool> {
        let sql = format!(
            "SELECT EXISTS(SELECT 1 FROM outbox WHERE {})",
            self.condition()
        );
        connection.query_row(&sql, params_from_iter(self.values()), |row| row.get(0))
    }

    /// Remove them; how many there were.
    pub fn remove(&self, connection: &Connection) -> Result<u64> {
        let sql = format!("DELETE FROM outbox WHERE {}", self.condition());
        let removed = connection.execute(&sql, params_from_iter(self.values()))?;
        Ok(removed as u64)
    }

    fn condition(&self) -> String {
        let hooks = vec!["?"; self.hooks.len()].join(", ");
        format!("at < ? AND (due_at IS NULL OR hook NOT IN ({hooks}))")
    }

    fn values(&self) -> impl Iterator<Item = &dyn ToSql> {
        let before: &dyn ToSql = &self.before;
        std::iter::once(before).chain(self.hooks.iter().map(|hook| hook as &dyn ToSql))
    }
}
