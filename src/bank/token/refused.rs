//! What a 401 to a request under a token means, and what people read of it.

use crate::refund::{Code, text};

/// What a 401 to a request under a token means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedToken {
    /// The token was good before, so the bank ended it early. The next request has another one.
    Replaced,
    /// A new token will probably be refused, too.
    Useless,
}

impl RefusedToken {
    /// Each node has a token of its own. If the server keeps one for each client, every new token ends the token of another node.
    const ADVICE: &str = "the token was new, or in place of another one; another node's token may have ended it: the token \
                          server must keep several tokens of one client at once";

    /// Writes it into the code and the message of the bank's refusal.
    pub fn explain(self, code: &mut Code, message: &mut String) {
        match self {
            RefusedToken::Replaced => *code = Code::TokenRefused,
            RefusedToken::Useless => *message = text::first(format!("{message}; {}", Self::ADVICE), 500),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_useless_token_says_that_another_nodes_token_may_have_ended_it_and_the_message_stays_short() {
        let explained = |refused: RefusedToken, said: &str| {
            let (mut code, mut message) = (Code::Unauthorised, said.to_owned());
            refused.explain(&mut code, &mut message);
            (code, message)
        };
        let replaced = explained(RefusedToken::Replaced, "HTTP 401");
        assert_eq!(replaced, (Code::TokenRefused, "HTTP 401".to_owned()));
        let (code, message) = explained(RefusedToken::Useless, "HTTP 401");
        assert_eq!(code, Code::Unauthorised);
        assert!(message.starts_with("HTTP 401; ") && message.contains("another node's token"), "{message}");
        assert_eq!(explained(RefusedToken::Useless, &"x".repeat(500)).1.len(), 500);
    }
}
