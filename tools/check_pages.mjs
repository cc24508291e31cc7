// The browser checks of tools/check_pages. The chat page is served from web/chat by a small stand-in for the server's
// API, so that its answers can be as hostile, slow and broken as the checks want them; --server checks the page that a
// running `octavo serve` gives out.
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { mkdirSync, readFileSync, readdirSync } from "node:fs";
import { dirname, extname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const require = createRequire(join(process.env.OCTAVO_PAGES_MODULES, "x.js"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const option = (name) => (process.argv.includes(name) ? process.argv[process.argv.indexOf(name) + 1] : null);

const kPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'";
const kTypes = { ".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript" };

// --- hostile model output ---

function hostileOutputs() {
  const payloads = [
    "<img src=x onerror=pwned()>", "<script>pwned()</script>", "<svg onload=pwned()>", "<iframe srcdoc='<script>parent.pwned()</script>'>",
    "<a href=javascript:pwned()>x</a>", "<body onload=pwned()>", "<details open ontoggle=pwned()>", "<style>@import 'http://evil.example/x.css'</style>",
    "<link rel=stylesheet href=http://evil.example/x.css>", "<meta http-equiv=refresh content='0;url=http://evil.example'>", "<form action=http://evil.example><button>x</button></form>",
    "<math><mtext><script>pwned()</script></mtext></math>", "<video><source onerror=pwned()></video>", "<input autofocus onfocus=pwned()>", "<base href=http://evil.example/>",
    "[x](javascript:pwned())", "[x](JaVaScRiPt:pwned())", "[x](data:text/html,<script>pwned()</script>)", "![x](http://evil.example/p.png)", "[x](vbscript:pwned())",
    "[x](http://a\"onmouseover=pwned())", "[a](https://evil.example/<script>)", "<http://evil.example/x>", "&lt;script&gt;pwned()&lt;/script&gt;", "\u202Egnp.exe<script>pwned()</script>\u2066",
  ];
  const wrap = [(p) => p, (p) => "```html\n" + p + "\n```", (p) => "# " + p + "\n> " + p, (p) => "- " + p + "\n  - " + p + "\n1. " + p,
    (p) => `| a | b |\n|---|---|\n| ${p} | **${p}** |`, (p) => "`" + p + "` *" + p + "* __" + p + "__", (p) => "```" + p, (p) => "text\n" + p.repeat(20) + "\n\n~~" + p + "~~"];
  return wrap.flatMap((w) => payloads.map(w));
}

// --- the stand-in ---

const mock = { key: "", chat: true, slots: 0, refuse: 0, refusal: 429, hostile: hostileOutputs(), requests: [] };

function replyFor(text) {
  if (text.startsWith("hostile ")) return [mock.hostile[Number(text.slice(8))]];
  if (text === "long") return Array.from({ length: 10000 }, (_, i) => (i % 90 === 89 ? "\n\n" : i % 400 === 60 ? "\n```js\nlet x = 1;\n```\n" : `word${i % 17} `));
  if (text === "rule") return ["above\n\n---\n\nbelow"];
  const story = "Octavo keeps **one set of bits**: the same seed gives the same text.\n\n1. Train in int8\n2. Convert\n3. Serve\n\n```cpp\nint main() { return 0; }\n```\n\n| what | bits |\n|---|---|\n| weights | 8 |\n| cache | 8 |\n\nSee [the docs](https://example.org/).";
  return story.match(/\s*\S+/g);
}

async function chat(request, response, body) {
  const { messages, seed } = JSON.parse(body);
  const text = messages.at(-1).content;
  if (mock.refuse > 0) {
    --mock.refuse;
    response.writeHead(mock.refusal, { "content-type": "application/json", "retry-after": "1" });
    response.end(JSON.stringify({ error: { message: "no", type: "x", code: { 400: "invalid_value", 429: "queue_full" }[mock.refusal] ?? "loading" } }));
    return;
  }
  ++mock.slots;
  let gone = false;
  response.on("close", () => { gone = true; });
  response.writeHead(200, { "content-type": "text/event-stream" });
  const chunk = (value) => response.write(`data: ${JSON.stringify({ id: "chatcmpl-1", object: "chat.completion.chunk", model: "tiny", system_fingerprint: "fp_2f8a91c0", ...value })}\n\n`);
  const say = (delta, finish = null) => chunk({ choices: [{ index: 0, delta, finish_reason: finish }] });
  say({ role: "assistant", content: "" });
  if (text === "think") say({ reasoning_content: "First I look at the question, then at the answer.\n" });
  const pieces = text === "slow" ? Array.from({ length: 100000 }, (_, i) => `s${i} `) : replyFor(text);
  for (let i = 0; i < pieces.length && !gone; ++i) {
    say({ content: pieces[i] });
    if (text === "slow") await new Promise((done) => setTimeout(done, 20));
    else if (i % 50 === 49) await new Promise((done) => setTimeout(done, 1));
    else if (pieces.length < 200) await new Promise((done) => setTimeout(done, 4));
  }
  --mock.slots;
  if (gone) return;
  say({}, "stop");
  chunk({ choices: [], usage: { prompt_tokens: 12, completion_tokens: pieces.length, total_tokens: 12 + pieces.length } });
  response.end("data: [DONE]\n\n");
}

const server = createServer((request, response) => {
  const path = new URL(request.url, "http://x").pathname;
  const file = path === "/" ? "index.html" : path.slice(1);
  if (request.method === "GET" && readdirSync(join(root, "web/chat")).includes(file)) {
    response.writeHead(200, { "content-type": kTypes[extname(file)], "content-security-policy": kPolicy, "x-content-type-options": "nosniff" });
    response.end(readFileSync(join(root, "web/chat", file)));
    return;
  }
  if (mock.key && request.headers.authorization !== `Bearer ${mock.key}`) {
    response.writeHead(401, { "content-type": "application/json" });
    response.end(JSON.stringify({ error: { message: "wrong key", type: "authentication_error", code: "invalid_api_key" } }));
    return;
  }
  if (path === "/v1/models") {
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ object: "list", data: [{ id: "tiny", object: "model", meta: { n_params: 1234567, quantization: "int8", chat: mock.chat } }, { id: "tiny-lora", object: "model", parent: "tiny" }] }));
    return;
  }
  let body = "";
  request.on("data", (piece) => { body += piece; });
  request.on("end", () => chat(request, response, body).catch(() => response.destroy()));
});

// --- the checks ---

let failures = 0;
function check(good, what, detail = "") {
  if (!good) ++failures;
  console.log(`${good ? "pass" : "FAIL"}  ${what}${detail !== "" ? `   ${detail}` : ""}`);
}

const shots = option("--shots");
if (shots) mkdirSync(shots, { recursive: true });

async function findings(page, where) {
  // Put in by the debugger, which the page's policy does not bind.
  await page.evaluate(axe);
  const result = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  const serious = result.violations.filter((one) => ["serious", "critical"].includes(one.impact));
  check(serious.length === 0, `${where}: no serious accessibility finding`, serious.map((one) => `${one.id} (${one.nodes.map((n) => n.target.join(" ")).slice(0, 3).join("; ")})`).join(", "));
}

async function everyLook(browser, name, url, prepare) {
  for (const scheme of ["light", "dark"]) {
    for (const width of [1280, 360]) {
      const context = await browser.newContext({ colorScheme: scheme, viewport: { width, height: width === 360 ? 740 : 800 } });
      const page = await watched(context, url);
      await prepare(page, width);
      await findings(page, `${name}, ${scheme}, ${width} px`);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      check(wide <= 0, `${name}, ${scheme}, ${width} px: nothing sticks out`, wide > 0 ? `${wide} px` : "");
      if (shots && !(scheme === "dark" && width === 360)) {
        await page.screenshot({ path: join(shots, `${name}-${width === 360 ? "phone" : scheme}.png`) });
      }
      await context.close();
    }
  }
}

// A page whose foreign requests and errors count.
const foreign = [];
const problems = [];
async function watched(context, url) {
  const page = await context.newPage();
  const origin = new URL(url).origin;
  page.on("request", (request) => {
    const target = request.url();
    if (!target.startsWith("data:") && !target.startsWith("blob:") && new URL(target).origin !== origin) foreign.push(target);
  });
  page.on("pageerror", (error) => problems.push(error.message));
  page.on("dialog", (dialog) => { problems.push("dialog"); dialog.dismiss(); });
  await page.addInitScript(() => {
    window.pwnedCount = 0;
    window.pwned = () => { ++window.pwnedCount; };
  });
  await page.goto(url);
  return page;
}

const finished = (page) => page.waitForFunction(() => document.getElementById("stop").hidden && !document.querySelector(".cursor"), null, { timeout: 60000 });
async function ask(page, text) {
  await page.fill("#input", text);
  await page.press("#input", "Enter");
}

async function checkHostile(browser, url) {
  const context = await browser.newContext();
  const page = await watched(context, url);
  let bad = 0;
  for (let i = 0; i < mock.hostile.length; ++i) {
    await page.click("#new");
    await ask(page, `hostile ${i}`);
    await finished(page);
    bad += await page.evaluate(() => {
      const log = document.getElementById("log");
      for (const link of log.querySelectorAll("a")) link.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
      const nodes = log.querySelectorAll("script, img, svg, iframe, style, link, meta, form, video, math, input, base, object, embed, [onerror], [onload], [onmouseover]").length;
      const links = [...log.querySelectorAll("a")].filter((a) => !/^(https?|mailto):/.test(a.href)).length;
      return nodes + links + window.pwnedCount;
    });
  }
  check(mock.hostile.length >= 200 && bad === 0, `${mock.hostile.length} hostile outputs run nothing`, bad ? `${bad} findings` : "");
  await context.close();
}

async function checkStream(browser, url) {
  const context = await browser.newContext();
  const page = await watched(context, url);
  await page.evaluate(() => {
    window.longest = 0;
    window.polite = 0;
    new MutationObserver(() => ++window.polite).observe(document.getElementById("live"), { childList: true, characterData: true, subtree: true });
    let last = performance.now();
    const tick = () => { const now = performance.now(); window.longest = Math.max(window.longest, now - last); last = now; requestAnimationFrame(tick); };
    requestAnimationFrame(tick);
    window.began = performance.now();
  });
  await ask(page, "long");
  await finished(page);
  const { longest, polite, seconds } = await page.evaluate(() => ({ longest: window.longest, polite: window.polite, seconds: (performance.now() - window.began) / 1000 }));
  check(longest < 200, "10,000 tokens: no frame over 200 ms", `${longest.toFixed(0)} ms`);
  check(polite <= 2 * seconds + 2, "the live region changes at most twice a second", `${polite} in ${seconds.toFixed(1)} s`);
  await ask(page, "slow");
  await page.waitForFunction(() => document.querySelector("article:last-of-type > .text")?.textContent.includes("s5"));
  check(mock.slots === 1, "a stream holds a slot");
  await page.reload();
  for (let i = 0; i < 50 && mock.slots; ++i) await new Promise((done) => setTimeout(done, 20));
  check(mock.slots === 0, "a reload in mid-stream frees it");
  await page.click("#new");
  await ask(page, "slow");
  await page.waitForSelector("#stop:visible");
  await page.keyboard.press("Escape");
  await finished(page);
  for (let i = 0; i < 50 && mock.slots; ++i) await new Promise((done) => setTimeout(done, 20));
  check(mock.slots === 0, "Escape stops an answer and frees the slot");
  await context.close();
}

async function checkStates(browser, url) {
  const context = await browser.newContext();
  mock.key = "right";
  const page = await watched(context, url);
  await page.waitForSelector("#notice div");
  check((await page.textContent("#notice")).includes("asks for an API key"), "without a key: says so");
  check(await page.locator("#notice button").count() === 0, "and offers nothing to try again");
  check(await page.evaluate(() => document.getElementById("model").disabled && document.getElementById("model").textContent === "no models yet"), "and the list says that there are no models yet");
  check(await page.evaluate(() => document.activeElement.id === "key"), "and puts the focus on the field");
  await page.fill("#key", "wrong");
  await page.press("#key", "Tab");
  await page.waitForTimeout(150);
  check((await page.textContent("#notice")).includes("does not accept this API key"), "a wrong key: says so");
  await page.fill("#key", "right");
  await page.press("#key", "Tab");
  await page.waitForFunction(() => document.getElementById("model").options.length === 2);
  check((await page.textContent("#notice")) === "", "the right key: models appear");
  await ask(page, "hello");
  await finished(page);
  check((await page.textContent("#log")).includes("one set of bits"), "and an answer comes");
  for (const [status, words] of [[429, "busy"], [503, "loaded"]]) {
    mock.refuse = 1;
    mock.refusal = status;
    await page.click("#new");
    await ask(page, "hello");
    await page.waitForSelector("#notice div");
    check((await page.textContent("#notice")).includes(words), `${status}: says so`);
    await page.waitForFunction(() => document.getElementById("log").textContent.includes("one set of bits"), null, { timeout: 10000 });
    check(true, `${status}: tries again by itself`);
    await finished(page);
  }
  mock.refuse = 1;
  mock.refusal = 400;
  await page.click("#new");
  check((await page.textContent("#log")).includes("go to this server only"), "a new chat says where messages go");
  await ask(page, "hello");
  await page.waitForSelector("#notice div");
  check((await page.locator("#notice button").count()) === 0, "400: no offer to try the same again");
  await page.click("#new");
  await ask(page, "rule");
  await finished(page);
  const rule = await page.evaluate(() => {
    const style = getComputedStyle(document.querySelector("#log hr"));
    return [style.borderTopWidth, style.borderBottomWidth, style.borderLeftWidth].join(" ");
  });
  check(rule === "1px 0px 0px", "a rule is one line", rule);
  mock.key = "";
  mock.chat = false;
  await page.reload();
  await page.waitForSelector("#why:visible");
  check((await page.textContent("#why")).includes("no chat template"), "without a chat template: says why there is no chat");
  check((await page.isDisabled("#input")) && (await page.isDisabled("#send")), "and the message field is disabled");
  const before = await page.locator("article").count();
  await page.click("button:has-text('Regenerate')");
  check((await page.locator("article").count()) === before && !(await page.isVisible("#stop")), "and older answers are not asked for again");
  await findings(page, "chat, no chat template");
  await page.selectOption("#model", "tiny-lora"); // which the stand-in says nothing of
  check(!(await page.isDisabled("#input")) && !(await page.isVisible("#why")), "and another model can be chosen");
  mock.chat = true;
  await context.close();
}

async function checkBranches(browser, url) {
  const context = await browser.newContext({ acceptDownloads: true });
  const page = await watched(context, url);
  await ask(page, "think");
  await finished(page);
  check(await page.isVisible("article.assistant details.reasoning"), "reasoning has a block of its own");
  await page.click("button:has-text('Same bits?')");
  await page.waitForFunction(() => /same text/.test(document.querySelector("article.assistant .tools").textContent));
  check(true, "the same seed gives the same text");
  await page.click("button:has-text('Regenerate')");
  await finished(page);
  check((await page.textContent("article.assistant .tools")).includes("2/2"), "answering again makes a branch");
  await page.click("button[aria-label='Earlier version']");
  check((await page.textContent("article.assistant .tools")).includes("1/2"), "the older branch is there");
  await page.click("article.user button:has-text('Edit')");
  await page.fill("article.user textarea", "another question");
  await page.click("button:has-text('Send as a new branch')");
  await finished(page);
  check((await page.textContent("article.user")).includes("another question"), "an edited message is a branch with an answer");
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("#export")]);
  const file = await download.path();
  await page.reload();
  check((await page.textContent("#log")).includes("another question"), "conversations survive a reload");
  const before = await page.locator("#list li").count();
  await page.setInputFiles("#import-file", { name: "chats.json", mimeType: "application/json", buffer: readFileSync(file) });
  await page.waitForFunction((n) => document.querySelectorAll("#list li").length > n, before);
  check(true, "an exported file comes back in");
  await page.setInputFiles("#import-file", { name: "x.json", mimeType: "application/json", buffer: Buffer.from("{\"all\":[1]}") });
  await page.waitForSelector("#notice div");
  check(true, "another file is refused");
  await context.close();
}

// --- the same page as a running `octavo serve` gives it ---

async function runningRequests(url, key) {
  const response = await fetch(new URL("metrics", url), { headers: key ? { authorization: `Bearer ${key}` } : {} });
  return Number(/^\w+_num_requests_running(?:{.*})? (\d+)/m.exec(await response.text())[1]);
}

async function becomesIdle(url, key) {
  for (let i = 0; i < 100; ++i) {
    if ((await runningRequests(url, key)) === 0) return true;
    await new Promise((done) => setTimeout(done, 20));
  }
  return false;
}

const streaming = (page) => page.waitForFunction(() => (document.querySelector("article.assistant:last-of-type > .text")?.textContent.length ?? 0) > 20, null, { timeout: 60000 });

async function watchFrames(page) {
  await page.evaluate(() => {
    window.longest = 0;
    let last = performance.now();
    const tick = () => { const now = performance.now(); window.longest = Math.max(window.longest, now - last); last = now; requestAnimationFrame(tick); };
    requestAnimationFrame(tick);
  });
}

async function enterKey(page, key) {
  if (!key) return;
  await page.waitForSelector("#notice div");
  await page.fill("#key", key);
  await page.press("#key", "Tab");
  await page.waitForFunction(() => !document.getElementById("model").disabled);
}

async function showSettings(page) {
  if (await page.evaluate(() => document.getElementById("settings").hidden)) await page.click("#settings-open");
}

async function checkRealKey(browser, url, key) {
  const context = await browser.newContext();
  const page = await watched(context, url);
  await page.waitForSelector("#notice div");
  check((await page.textContent("#notice")).includes("asks for an API key"), "real server, no key: says so");
  await page.fill("#key", key + "x");
  await page.press("#key", "Tab");
  await page.waitForTimeout(300);
  check((await page.textContent("#notice")).includes("does not accept this API key"), "real server, wrong key: says so");
  await page.fill("#key", key);
  await page.press("#key", "Tab");
  await page.waitForFunction(() => !document.getElementById("model").disabled);
  check((await page.textContent("#notice")) === "", "real server, right key: models appear");
  await context.close();
}

async function checkReal(browser, url, key) {
  const context = await browser.newContext();
  const page = await watched(context, url);
  await enterKey(page, key);
  await page.waitForFunction(() => !document.getElementById("model").disabled);
  const policy = (await (await fetch(url, { headers: { "accept-encoding": "gzip" } })).headers.get("content-security-policy")) ?? "";
  check(policy === kPolicy, "real server: the page's policy", policy === kPolicy ? "" : policy);
  // By keyboard alone: from the top of the page to the message field and the button that sends. Tab would go on from
  // where the key was typed; after a reload, which keeps the key, it begins at the top.
  await page.reload();
  await page.waitForFunction(() => !document.getElementById("model").disabled);
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter"); // skip to the message field
  check(await page.evaluate(() => document.activeElement.id === "input"), "real server: the skip link leads to the message field");
  await page.keyboard.type("Tell me a story about a dog.");
  await page.keyboard.press("Tab");
  check(await page.evaluate(() => document.activeElement.id === "send"), "real server: Tab leads on to Send");
  await page.keyboard.press("Enter");
  await finished(page);
  const first = await page.textContent("article.assistant > .text");
  check(first.length > 0, "real server: an answer comes", `${first.length} characters`);
  const facts = await page.textContent("article.assistant .tools");
  check(/\d+ tokens/.test(facts) && /seed \d+/.test(facts) && /tok\/s/.test(facts), "real server: tokens, speed and seed are shown", facts.replace(/.*Same bits\?/, ""));
  await page.click("button:has-text('Same bits?')");
  await page.waitForFunction(() => /same text|differs/.test(document.querySelector("article.assistant .tools").textContent), null, { timeout: 60000 });
  check((await page.textContent("article.assistant .tools")).includes("same text"), "real server: the same seed gives the same text");
  check(await becomesIdle(url, key), "real server: no slot is held afterwards");
  await context.close();
}

async function checkRealLong(browser, url, key) {
  const context = await browser.newContext();
  const page = await watched(context, url);
  await enterKey(page, key);
  await page.waitForFunction(() => !document.getElementById("model").disabled);
  await showSettings(page);
  await page.fill("[data-option=max_completion_tokens]", "10000");
  await page.fill("[data-option=temperature]", "0"); // a model that is hardly trained then repeats itself and never ends
  await page.press("[data-option=temperature]", "Tab");
  await ask(page, "on and on");
  await streaming(page);
  check((await runningRequests(url, key)) === 1, "real server: a stream holds a slot");
  await page.reload();
  check(await becomesIdle(url, key), "real server: a reload in mid-stream frees it");
  await page.waitForFunction(() => !document.getElementById("model").disabled);
  await page.click("#new");
  await ask(page, "on and on");
  await streaming(page);
  await page.keyboard.press("Escape");
  await finished(page);
  check(await becomesIdle(url, key), "real server: Escape stops an answer and frees the slot");
  await page.click("#new");
  await watchFrames(page);
  await ask(page, "on and on");
  await page.waitForFunction(() => document.getElementById("stop").hidden && !document.querySelector(".cursor"), null, { timeout: 240000 });
  const { longest, tokens } = await page.evaluate(() => ({ longest: window.longest, tokens: /(\d+) tokens/.exec(document.querySelector("article.assistant:last-of-type .tools").textContent)?.[1] }));
  check(longest < 200, "real server: a long stream without a frame over 200 ms", `${longest.toFixed(0)} ms, ${tokens} tokens`);
  await context.close();
}

async function checkRealServer(browser, url) {
  const key = option("--key") ?? "";
  if (key) await checkRealKey(browser, url, key);
  if (process.argv.includes("--long")) return checkRealLong(browser, url, key);
  await checkReal(browser, url, key);
  await everyLook(browser, "chat", url, async (page, width) => {
    await enterKey(page, key);
    await page.waitForFunction(() => !document.getElementById("model").disabled);
    await showSettings(page);
    await page.fill("[data-option=seed]", "7");
    await page.press("[data-option=seed]", "Tab");
    if (width < 1000) await page.click("#settings-open");
    await ask(page, option("--ask") ?? "Tell me a story about a dog.");
    await finished(page);
    await page.waitForTimeout(300);
  });
}

// --- the run dashboard ---

async function checkPlots(page, width) {
  const found = await page.evaluate(() => {
    const bad = { small: [], out: [], apart: [], over: [] };
    if (!document.querySelector(".drawing text")) bad.small.push("no label at all");
    for (const text of document.querySelectorAll(".drawing text")) {
      if (getComputedStyle(text).display === "none") continue;
      const height = parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().d;
      if (height < 11) bad.small.push(`${text.textContent}: ${height.toFixed(1)} px`);
      const box = text.getBoundingClientRect();
      const figure = text.closest("figure").getBoundingClientRect();
      if (box.left < figure.left || box.right > figure.right || box.bottom > figure.bottom) bad.out.push(text.textContent);
    }
    for (const drawing of document.querySelectorAll(".drawing")) {
      for (const [kind, from, to] of [["x", "left", "right"], ["y", "top", "bottom"]]) {
        const boxes = [...drawing.querySelectorAll(`text.${kind}`)].map((one) => one.getBoundingClientRect()).filter((box) => box.width > 0);
        boxes.sort((a, b) => a[from] - b[from]);
        boxes.forEach((box, i) => { if (i && box[from] < boxes[i - 1][to]) bad.over.push(`${kind} of ${drawing.getAttribute("aria-label")}`); });
      }
    }
    for (const cell of document.querySelectorAll("table td:has(.key)")) {
      const range = document.createRange();
      range.selectNodeContents(cell.lastChild);
      const [key, name] = [cell.querySelector(".key").getBoundingClientRect(), range.getBoundingClientRect()];
      if (key.bottom < name.top || key.top > name.bottom || name.left < key.right) bad.apart.push(cell.textContent);
    }
    return bad;
  });
  const pale = await page.evaluate(() => [...document.querySelectorAll("td.cell")].filter((one) =>
    getComputedStyle(one).borderTopWidth !== "1px" || getComputedStyle(one).borderTopColor === getComputedStyle(document.body).backgroundColor || !one.textContent).length);
  check(pale === 0, `dashboard, ${width} px: every square has an outline and a text`, pale ? `${pale} have not` : "");
  const say = (list, what) => check(list.length === 0, `dashboard, ${width} px: ${what}`, list.slice(0, 3).join(", "));
  say(found.small, "labels of axes are 11 px or more");
  say(found.out, "labels stay inside their figure");
  say(found.over, "labels do not cover each other");
  say(found.apart, "a run's colour stands beside its name");
}

async function main() {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"] });
  try {
    await new Promise((done) => server.listen(0, "127.0.0.1", done));
    const url = `http://127.0.0.1:${server.address().port}/`;
    if (!process.argv.includes("--no-chat")) {
      const only = option("--only");
      if (!only) await everyLook(browser, "chat", url, async (page, width) => {
        await ask(page, "What does Octavo promise?");
        await finished(page);
        await page.waitForTimeout(300);
        if (width > 1000) await page.click("#settings-open");
      });
      if (!only || only === "states") await checkStates(browser, url);
      if (!only || only === "branches") await checkBranches(browser, url);
      if (!only || only === "stream") await checkStream(browser, url);
      if (!only || only === "hostile") await checkHostile(browser, url);
    }
    const real = option("--server");
    if (real) await checkRealServer(browser, real);
    const report = option("--report");
    if (report) await everyLook(browser, "report", pathToFileURL(report).href, async (page) => page.waitForTimeout(200));
    const dashboard = option("--dashboard");
    if (dashboard) {
      await everyLook(browser, "dashboard", dashboard, async (page, width) => {
        await page.waitForSelector("figure.plot");
        await checkPlots(page, width);
      });
    }
  } finally {
    await browser.close();
    server.close();
    server.closeAllConnections();
  }
  check(foreign.length === 0, "no request to another origin", foreign.slice(0, 3).join(" "));
  check(problems.length === 0, "no error in a page", problems.slice(0, 3).join(" "));
  console.log(failures ? `${failures} failed` : "all passed");
  process.exitCode = failures ? 1 : 0;
}

await main();
