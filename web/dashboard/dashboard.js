// The run dashboard: asks for the drawn page when something changed, and puts it in place. All drawing is done by the
// program that also writes the report.
const $ = (id) => document.getElementById(id);
let etag = "";
let shown = "";

const query = () => new URLSearchParams({ x: $("x").value, smooth: $("smooth").value, log: $("log").checked ? "1" : "0", heat: $("heat").value }).toString();

async function refresh() {
  const wanted = query();
  try {
    const response = await fetch(`api/view?${wanted}`, { headers: etag && wanted === shown ? { "If-None-Match": etag } : {}, cache: "no-store" });
    if (response.status === 304) {
      $("state").textContent = "nothing new";
      $("state").className = "";
      return;
    }
    if (!response.ok) throw new Error((await response.json().catch(() => null))?.error?.message ?? `status ${response.status}`);
    const parsed = new DOMParser().parseFromString(await response.text(), "text/html");
    const open = new Set([...$("view").querySelectorAll("details[open]")].map((one) => one.dataset.id));
    for (const one of parsed.querySelectorAll("details")) if (open.has(one.dataset.id)) one.open = true;
    const place = [window.scrollX, window.scrollY];
    $("view").replaceChildren(...[...parsed.body.childNodes].map((node) => document.adoptNode(node)));
    window.scrollTo(...place);
    globalThis.octavoPlots($("view"));
    etag = response.headers.get("etag") ?? "";
    shown = wanted;
    $("state").textContent = `as of ${new Date().toLocaleTimeString()}`;
    $("state").className = "";
  } catch (error) {
    $("state").textContent = `no answer: ${error.message}`;
    $("state").className = "bad";
  }
}

for (const id of ["x", "smooth", "log", "heat"]) $(id).addEventListener("input", refresh);
// A page that nobody looks at asks for nothing.
setInterval(() => document.hidden || refresh(), 2000);
refresh();
