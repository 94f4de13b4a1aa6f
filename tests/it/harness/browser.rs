//! A headless Chromium, driven by `WebDriver` through chromedriver.
//!
//! `WebDriver` is JSON over HTTP, so a plain client is enough. The browser is private: it has a folder of its own, reaches
//! nothing but this machine, and ends with this value.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::within;

/// How the browser shows a page.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    pub width: u32,
    pub height: u32,
    pub dark: bool,
}

/// Both widths in both schemes.
pub const LOOKS: [Look; 4] = [
    Look { width: 360, height: 740, dark: false },
    Look { width: 360, height: 740, dark: true },
    Look { width: 1600, height: 1000, dark: false },
    Look { width: 1600, height: 1000, dark: true },
];

/// A wide screen, in light.
pub const WIDE: Look = LOOKS[2];

/// One browser at a time: a browser takes as much of the machine as all other tests together. Tests start in the order of
/// their full names, and one that waits here keeps a thread from all others. So the tests in a browser do not stand side by
/// side: each is in `in_a_browser.rs` of the room of its subject.
static ONE: Semaphore = Semaphore::const_new(1);

pub struct Browser {
    client: Client<HttpConnector, Full<Bytes>>,
    driver: Child,
    /// Where chromedriver listens.
    address: String,
    session: String,
    _folder: tempfile::TempDir,
    _one: SemaphorePermit<'static>,
}

fn program(names: &[&str]) -> String {
    let found = names.iter().find(|name| Path::new(name).exists());
    let found = found.unwrap_or_else(|| panic!("none of {names:?} is here; run tools/install-servers"));
    (*found).to_owned()
}

type Lines = std::io::Lines<BufReader<std::process::ChildStdout>>;

/// A new chromedriver, what else it says, and its port. `None` if it ends at once.
fn begin_driver(home: &Path) -> Option<(Child, Lines, String)> {
    // Tests beside it must not miss their permits because a page is drawn. `nice` becomes chromedriver, so it is the child.
    let mut driver = Command::new("nice")
        .args(["-n", "5", &program(&["/usr/bin/chromedriver", "/usr/local/bin/chromedriver"]), "--port=0"])
        .env("HOME", home)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
    let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let (_, port) = line.split_once("started successfully on port ")?;
        Some(port.trim_end_matches('.').to_owned())
    });
    if port.is_none() {
        let _ = driver.kill();
        driver.wait().unwrap();
    }
    port.map(|port| (driver, lines, port))
}

impl Browser {
    pub async fn open() -> Browser {
        let one = ONE.acquire().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        // It takes a free port of IPv4, and ends if another program has the same port of IPv6.
        let begun = (0..10).find_map(|_| begin_driver(folder.path()));
        let (driver, lines, port) = begun.expect("chromedriver says on which port it listens");
        let address = format!("127.0.0.1:{port}");
        // Nobody may stop reading, or chromedriver waits for room.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let mut arguments: Vec<String> = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--lang=en",
        ]
        .map(str::to_owned)
        .to_vec();
        arguments.push(format!("--user-data-dir={}", folder.path().join("profile").display()));
        let options = json!({ "binary": program(&["/usr/bin/chromium", "/usr/bin/chromium-browser"]), "args": arguments });
        let client = Client::builder(TokioExecutor::new()).build_http();
        let mut browser =
            Browser { client, driver, address, session: String::new(), _folder: folder, _one: one };
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "acceptInsecureCerts": true, "goog:chromeOptions": options, "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let opened = browser.call(Method::POST, "/session", &wanted).await;
        opened["sessionId"].as_str().unwrap().clone_into(&mut browser.session);
        browser
    }

    async fn call(&self, method: Method, path: &str, body: &Value) -> Value {
        let request = Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = request.header("content-type", "application/json").body(Full::from(body)).unwrap();
        let answer = self.client.request(request).await.unwrap();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        let mut answer: Value = serde_json::from_slice(&bytes).unwrap();
        assert!(answer["value"]["error"].is_null(), "{path}: {}", answer["value"]["message"]);
        answer["value"].take()
    }

    async fn command(&self, path: &str, body: Value) -> Value {
        self.call(Method::POST, &format!("/session/{}/{path}", self.session), &body).await
    }

    /// A command of Chromium's own protocol.
    async fn chromium(&self, command: &str, parameters: Value) -> Value {
        self.command("goog/cdp/execute", json!({ "cmd": command, "params": parameters })).await
    }

    /// From now on shows pages so.
    pub async fn look(&self, look: Look) {
        let size =
            json!({ "width": look.width, "height": look.height, "deviceScaleFactor": 1, "mobile": false });
        self.chromium("Emulation.setDeviceMetricsOverride", size).await;
        let scheme = if look.dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.chromium("Emulation.setEmulatedMedia", media).await;
    }

    /// The reader lives in this time zone.
    pub async fn live_in(&self, zone: &str) {
        self.chromium("Emulation.setTimezoneOverride", json!({ "timezoneId": zone })).await;
    }

    /// Loads nothing any more whose address matches.
    pub async fn block(&self, pattern: &str) {
        self.chromium("Network.enable", json!({})).await;
        self.chromium("Network.setBlockedURLs", json!({ "urls": [pattern] })).await;
    }

    /// Sends a header with every request from now on.
    pub async fn send_header(&self, name: &str, value: &str) {
        self.chromium("Network.enable", json!({})).await;
        self.chromium("Network.setExtraHTTPHeaders", json!({ "headers": { name: value } })).await;
    }

    pub async fn go(&self, url: &str) {
        self.command("url", json!({ "url": url })).await;
    }

    /// The result of a script, which says `return`.
    pub async fn eval(&self, script: &str) -> Value {
        self.command("execute/sync", json!({ "script": script, "args": [] })).await
    }

    /// The text of the page, as a reader sees it.
    pub async fn text(&self) -> String {
        self.eval("return document.body.innerText").await.as_str().unwrap().to_owned()
    }

    /// Waits until the page shows these words.
    pub async fn shows(&self, words: &str) {
        within(Duration::from_secs(30), &format!("the page shows `{words}`"), async || {
            self.text().await.contains(words)
        })
        .await;
    }

    /// Presses keys, one after the other. Words of several letters name a key, such as `Tab`.
    pub async fn press(&self, keys: &[&str]) {
        let code = |key: &str| match key {
            "Tab" => "\u{e004}".to_owned(),
            "Enter" => "\u{e007}".to_owned(),
            "Space" => " ".to_owned(),
            "Down" => "\u{e015}".to_owned(),
            other => other.to_owned(),
        };
        let presses: Vec<Value> = keys
            .iter()
            .flat_map(|key| {
                let key = code(key);
                [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })]
            })
            .collect();
        let keyboard = json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": presses }] });
        self.command("actions", keyboard).await;
    }

    /// Writes a text into the focused field, letter by letter.
    pub async fn write(&self, text: &str) {
        let letters: Vec<String> = text.chars().map(String::from).collect();
        self.press(&letters.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }

    /// Presses Tab until the element of this selector has the focus, as somebody without a mouse does.
    pub async fn tab_to(&self, selector: &str) {
        let script = format!("return document.activeElement?.matches({}) ?? false", json!(selector));
        for _ in 0..200 {
            if self.eval(&script).await == true {
                return;
            }
            self.press(&["Tab"]).await;
        }
        panic!("no Tab leads to `{selector}`");
    }

    /// Gives axe to every document from now on. [`Browser::findings`] starts it, because a new document is still empty.
    pub async fn add_axe(&self) {
        let source = format!("window.addAxe = () => {{\n{}\n}};", axe());
        self.chromium("Page.addScriptToEvaluateOnNewDocument", json!({ "source": source })).await;
    }

    /// The findings of axe on this page: the rule, and the elements. Needs [`Browser::add_axe`] before the page opens.
    pub async fn findings(&self) -> Vec<String> {
        let script = "const done = arguments[0];
            window.axe ?? addAxe();
            axe.run(document, { resultTypes: ['violations'] }).then((found) => done(found.violations.map((one) =>
                `${one.id}: ${one.help}: ${one.nodes.map((node) => node.html + ' ' + node.failureSummary).join(' | ')}`)),
                (error) => done([String(error)]));";
        let found = self.command("execute/async", json!({ "script": script, "args": [] })).await;
        found.as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
    }

    /// What the browser complained about since the last call: refused scripts and styles, failed requests.
    pub async fn complaints(&self) -> Vec<String> {
        let log = self.command("se/log", json!({ "type": "browser" })).await;
        log.as_array().unwrap().iter().map(|line| line["message"].as_str().unwrap().to_owned()).collect()
    }

    /// A picture of the page as PNG; of its visible part, or of all of it.
    pub async fn picture(&self, whole: bool) -> Vec<u8> {
        let picture = self
            .chromium("Page.captureScreenshot", json!({ "format": "png", "captureBeyondViewport": whole }))
            .await;
        STANDARD.decode(picture["data"].as_str().unwrap()).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Chromedriver ends its browser with the session.
        if let Ok(mut stream) = TcpStream::connect(&self.address) {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
            let (session, address) = (&self.session, &self.address);
            let _ = write!(
                stream,
                "DELETE /session/{session} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
            );
            let _ = stream.read_to_end(&mut Vec::new());
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// The script of axe-core, which checks a page for people who see, hear or move differently.
fn axe() -> String {
    let tool = concat!(env!("CARGO_MANIFEST_DIR"), "/tools/axe");
    let output = Command::new(tool).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "tools/axe failed");
    std::fs::read_to_string(String::from_utf8(output.stdout).unwrap().trim()).unwrap()
}
