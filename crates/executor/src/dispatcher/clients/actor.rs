//! Who makes a call: a program of this user, or the gateway for the holder of a token.

use std::sync::Arc;

use rustix::process::geteuid;

use crate::error::Refusal;
use crate::id::RequestId;
use crate::request::Submission;

/// Who makes a call.
///
/// Programs of this user may name any submitter, since it only decides about turns among what the same user submits,
/// who could write the database as well. Who acted is another matter: only the gateway speaks for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor<'a> {
    /// A program on a Unix socket, which belongs to this user.
    User,
    /// The gateway, for the holder of this token.
    Gateway(Option<&'a str>),
}

impl Actor<'_> {
    /// As it is kept and logged.
    pub fn name(self) -> Arc<str> {
        match self {
            // A token's name has no colon.
            Self::User => format!("uid:{}", geteuid().as_raw()).into(),
            Self::Gateway(Some(name)) => name.into(),
            Self::Gateway(None) => "gateway".into(),
        }
    }

    /// A submission with who has made it: through the gateway, its submitter is the holder of the token.
    ///
    /// # Errors
    /// `forbidden`: it has a quota and does not come through the gateway, or is a child and does.
    pub fn signed(self, mut submission: Submission) -> Result<Submission, Refusal> {
        let Self::Gateway(by) = self else {
            let quota = submission.options.quota;
            return quota.map_or(Ok(submission), |quota| Err(not_a_gateways(quota)));
        };
        if let Some(parent) = submission.options.parent_of_child() {
            return Err(not_a_tokens(parent));
        }
        if let Some(name) = by {
            submission.submitter = name.into();
        }
        let by = Arc::clone(&submission.submitter);
        Arc::make_mut(&mut submission.options).by = Some(by);
        Ok(submission)
    }
}

/// The refusal of a client that acts for another.
pub fn not_the_gateway(name: &str) -> Refusal {
    Refusal {
        code: "forbidden",
        message: format!("a client of the socket acts for {name:?}, and only the gateway may"),
        object: "by".into(),
        limit: String::new(),
        value: name.into(),
        next: "leave it out, or call the gateway with a token".into(),
    }
}

fn not_a_gateways(quota: u32) -> Refusal {
    Refusal {
        code: "forbidden",
        message: "a client of the socket has a quota, and only the gateway says one".into(),
        object: "option quota".into(),
        limit: String::new(),
        value: quota.to_string(),
        next: "leave it out; executor.max_queued_per_submitter is for all".into(),
    }
}

fn not_a_tokens(parent: RequestId) -> Refusal {
    Refusal {
        code: "forbidden",
        message: format!(
            "a client of the gateway submits a child of request {parent}, and only that request may"
        ),
        object: "option call".into(),
        limit: String::new(),
        value: parent.to_string(),
        next: "leave it out".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Child, Options};

    fn signed(actor: Actor<'_>) -> (String, Option<String>) {
        let submission = Submission {
            name: "work".into(),
            code: "code".into(),
            submitter: "mine".into(),
            arguments: Vec::new().into(),
            options: Arc::new(Options::default()),
        };
        let signed = actor.signed(submission).expect("signed");
        let by = signed.options.by.as_deref().map(str::to_owned);
        (signed.submitter.to_string(), by)
    }

    #[test]
    fn the_holder_of_a_token_is_submitter_and_signs() {
        let (ann, mine) = ("ann".to_owned(), "mine".to_owned());
        let through_gateway = signed(Actor::Gateway(Some("ann")));
        assert_eq!(through_gateway, (ann.clone(), Some(ann)));
        assert_eq!(
            signed(Actor::Gateway(None)),
            (mine.clone(), Some(mine.clone()))
        );
        assert_eq!(signed(Actor::User), (mine, None));
    }

    #[test]
    fn nobody_is_the_child_of_anothers_request_through_the_gateway() {
        let options = Options {
            parent: Some(RequestId(7)),
            child: Some(Child::default()),
            ..Options::default()
        };
        let submission = Submission {
            name: "work".into(),
            code: "code".into(),
            submitter: "mine".into(),
            arguments: Vec::new().into(),
            options: Arc::new(options),
        };
        assert!(Actor::User.signed(submission.clone()).is_ok());
        let refused = Actor::Gateway(Some("ann")).signed(submission);
        assert!(refused.is_err_and(|refusal| refusal.code == "forbidden"));
    }

    #[test]
    fn a_user_is_no_token() {
        assert!(Actor::User.name().starts_with("uid:"));
        assert_eq!(&*Actor::Gateway(Some("ann")).name(), "ann");
    }
}
