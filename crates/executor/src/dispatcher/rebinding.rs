//! What to report when a listener whose file was removed is bound again.

use std::path::Path;

use crate::error::Result;

/// The reports of one listener.
#[derive(Debug, Default)]
pub struct RebindReports {
    /// The last attempt failed, and that was reported.
    has_failed: bool,
}

impl RebindReports {
    /// What to report of an attempt to bind the socket at `path` again. Of failures in a row the first is reported.
    pub fn report(
        &mut self,
        path: &Path,
        attempt: Result<()>,
    ) -> Option<std::result::Result<(), String>> {
        let failed_before = std::mem::replace(&mut self.has_failed, attempt.is_err());
        match attempt {
            Ok(()) => Some(Ok(())),
            Err(_) if failed_before => None,
            Err(why) => Some(Err(format!(
                "the socket {} was removed and cannot be made again: {why}; start the server again",
                path.display()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn failures_in_a_row_are_reported_once() {
        let mut reports = RebindReports::default();
        let mut report = |attempt| reports.report(Path::new("/run/s"), attempt);
        let failure = || Err(Error::Config("full".into()));
        let text =
            "the socket /run/s was removed and cannot be made again: full; start the server again";
        assert_eq!(report(failure()), Some(Err(text.into())));
        assert_eq!(report(failure()), None);
        assert_eq!(report(Ok(())), Some(Ok(())));
        assert_eq!(report(failure()), Some(Err(text.into())));
    }
}
