//! Text as forms code it.

use std::fmt::Write as _;

/// A text as `application/x-www-form-urlencoded` writes it.
pub(super) fn form_encoded(text: &str) -> String {
    let mut coded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'*' | b'-' | b'.' | b'_' => {
                coded.push(char::from(byte));
            }
            b' ' => coded.push('+'),
            other => {
                let _ = write!(coded, "%{other:02X}");
            }
        }
    }
    coded
}

#[cfg(test)]
mod tests {
    use super::form_encoded;

    #[test]
    fn a_name_and_a_secret_are_coded_as_the_standard_demands() {
        // The example of RFC 6749, appendix B.
        assert_eq!(form_encoded(" %&+£€"), "+%25%26%2B%C2%A3%E2%82%AC");
        assert_eq!(form_encoded("refundd-1.a_b*"), "refundd-1.a_b*");
    }
}
