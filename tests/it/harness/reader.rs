//! Somebody who reads pages in a browser and notes what is wrong with each.

use serde_json::json;

use super::browser::{Browser, LOOKS};

/// What is wrong with the page that the browser shows, with everything opened, so that nothing hides from the check.
async fn faults(browser: &Browser) -> Vec<String> {
    browser.eval("document.querySelectorAll('details').forEach((one) => { one.open = true; })").await;
    let mut faults = browser.findings().await;
    let wider = browser
        .eval("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        .await;
    if wider != 0 {
        faults.push(format!("{wider} px wider than the screen"));
    }
    let hidden =
        "const menu = document.querySelector('header nav'); return menu.scrollWidth - menu.clientWidth";
    if browser.eval(hidden).await != 0 {
        faults.push("a part of the menu is hidden".to_owned());
    }
    let covered = "
        const place = (one) => one.getBoundingClientRect();
        const words = [...document.querySelectorAll('.choice > input + *')];
        return words.filter((one) => place(one).left < place(one.previousElementSibling).right).length";
    if browser.eval(covered).await != 0 {
        faults.push("the words of a choice cover its button".to_owned());
    }
    faults
}

/// A browser, and what it found so far.
pub struct Reader {
    pub browser: Browser,
    findings: Vec<String>,
    pages: usize,
}

impl Reader {
    pub async fn open() -> Reader {
        let browser = Browser::open().await;
        browser.add_axe().await;
        Reader { browser, findings: Vec::new(), pages: 0 }
    }

    /// Fills in the fields of a form and sends it. `chosen` are boxes and radio buttons by their values.
    pub async fn send(&self, form: &str, fields: &[(&str, &str)], chosen: &[&str]) {
        let script = format!(
            "const form = document.querySelector({});
             for (const [name, value] of {}) form.querySelector(`[name=${{name}}]`).value = value;
             for (const value of {}) [...form.elements].find((one) => one.value === value).checked = true;
             form.requestSubmit();",
            json!(form),
            json!(fields),
            json!(chosen)
        );
        self.browser.eval(&script).await;
    }

    /// Waits for a page, and checks it as it stands there in every look.
    pub async fn check(&mut self, words: &str) {
        self.browser.shows(words).await;
        self.check_shown(words).await;
    }

    /// Checks the page that stands there in every look. Findings call it by this name.
    pub async fn check_shown(&mut self, name: &str) {
        self.pages += 1;
        for look in LOOKS {
            self.browser.look(look).await;
            let found = faults(&self.browser).await;
            self.findings.extend(found.into_iter().map(|what| format!("`{name}` at {look:?}: {what}")));
        }
    }

    pub fn end(self) {
        assert_eq!(self.findings, Vec::<String>::new());
        println!("{} pages, {} looks, no finding", self.pages, LOOKS.len());
    }
}
