// Hears of changes through /live, fetches the changing part of the page, and puts in place
// what differs. All works without it.
(() => {
  "use strict";
  const $ = (id) => document.getElementById(id);
  const list = (sel) => [...document.querySelectorAll(sel)];
  const all = (sel, f) => list(sel).forEach(f);
  const on = (type, f) => document.addEventListener(type, f);
  const has = (name) => $("main").dataset[name] !== undefined;
  const held = () => has("hold") && list(".pick:checked").length;
  let skew = 0, source, live, busy, again, lost, last = Date.now();

  // Times, in the viewer's zone.
  const unit = (n, name) => (n ? n + name : "");
  const span = (s) => {
    const m = Math.round(s / 60), h = Math.round(s / 3600);
    if (s <= 0) return "0s";
    if (s < 3600) return unit((s / 60) | 0, "m") + unit(s % 60, "s");
    if (m < 2880) return unit((m / 60) | 0, "h") + unit(m % 60, "m");
    return unit((h / 24) | 0, "d") + unit(h % 24, "h");
  };
  const write = (el, text) => { if (el && el.textContent !== text) el.textContent = text; };
  const localise = () => all("[data-t]", (el) => {
    const at = new Date(+el.dataset.t), clock = at.toTimeString();
    const day = at.toDateString() === new Date().toDateString() || el.matches(".axis") ? "" :
      at.toLocaleString("en", { month: "short", day: "numeric" }) + " ";
    write(el, el.textContent.replace(/([A-Z][a-z]{2} \d+ )?\d\d:\d\d(:\d\d)?( UTC)?/, (_, d, s) => day + clock.slice(0, s ? 8 : 5)));
  });
  const tick = () => {
    const now = Date.now() + skew, past = (at) => span(Math.ceil((now - at) / 1000));
    all("[data-until]", (el) => {
      const left = el.dataset.until - now;
      write(el, span(Math.ceil(left / 1000)));
      if (left <= 0 && left > -1500) refresh();
    });
    all("[data-ago]", (el) => write(el, past(el.dataset.ago) + " ago"));
    all("[data-since]", (el) => write(el, past(el.dataset.since)));
    if (Date.now() - last >= (lost || has("stale") ? 2000 : live ? 15000 : 3000)) refresh();
  };

  const key = (el) => el.nodeType === 1 && (el.getAttribute("id") || el.dataset.k); // a form may have a field called id
  const morph = (a, b) => {
    for (const { name } of [...a.attributes]) if (!b.hasAttribute(name) && !(name === "open" && a.nodeName === "DETAILS")) a.removeAttribute(name);
    for (const { name, value } of b.attributes) if (a.getAttribute(name) !== value) a.setAttribute(name, value);
    const known = new Map([...a.children].map((c) => [key(c), c]));
    let at = a.firstChild;
    for (const n of [...b.childNodes]) {
      const k = key(n), m = k ? known.get(k) : at && !key(at) ? at : null;
      if (!m || m.nodeName !== n.nodeName) { a.insertBefore(n, at); continue; }
      if (m === at) at = at.nextSibling;
      else (a.moveBefore || a.insertBefore).call(a, m, at);
      if (n.nodeType === 1) morph(m, n);
      else if (m.nodeValue !== n.nodeValue) m.nodeValue = n.nodeValue;
    }
    while (at) { const next = at.nextSibling; at.remove(); at = next; }
  };
  const said = () => new Map(list("[data-say]").map((el) => [el.dataset.k, el.dataset.say]));
  const settle = () => {
    skew = $("main").dataset.now - Date.now();
    document.title = $("main").dataset.title;
    localise();
    count();
  };
  const status = () => {
    const away = lost || has("stale");
    write($("live"), !has("live") ? "" : lost ? "Tidegate does not answer; trying again" : away ? "Redis is away; trying again" :
      held() ? "Not updated while jobs are selected" : live ? "Live" : "Updated every 3 s");
    $("live").className = away ? "lost" : live ? "on" : "";
  };
  const refresh = async () => {
    if (busy) { again = true; return; }
    if (document.hidden || !has("live") || held()) return;
    busy = true;
    try {
      const r = await fetch(location.href, { headers: { "X-Requested-With": "script" }, cache: "no-store", signal: AbortSignal.timeout(15000) });
      if (r.status === 401 || r.redirected) return location.reload();
      const next = new DOMParser().parseFromString(await r.text(), "text/html").getElementById("main");
      if (!held()) {
        const before = said(), news = [];
        morph($("main"), next);
        settle();
        said().forEach((text, k) => { if (before.has(k) && before.get(k) !== text) news.push(text); });
        if (news.length) write($("say"), news.join(". "));
      }
      lost = false;
    } catch {
      lost = true;
    }
    busy = false;
    last = Date.now();
    status();
    if (again) { again = false; refresh(); }
  };
  const connect = () => {
    live = source = source && source.close();
    if (document.hidden || !has("live")) return;
    source = new EventSource("/live");
    source.addEventListener("ready", () => { live = true; refresh(); });
    source.addEventListener("change", refresh);
    source.onerror = () => { live = false; status(); };
  };
  on("visibilitychange", () => { connect(); refresh(); });

  // Ticks, and keys.
  const count = () => {
    const box = $("all"), boxes = list(".pick").length, n = list(".pick:checked").length;
    status();
    if (!box) return;
    box.hidden = false;
    box.checked = n && n === boxes;
    box.indeterminate = n && n < boxes;
    write($("picked"), n ? n + (n === 1 ? " selected job" : " selected jobs") : "Selected jobs");
  };
  on("change", ({ target }) => {
    if (target.id === "all") all(".pick", (b) => { b.checked = target.checked; });
    else if (!target.matches(".pick")) return;
    all('#act [name=scope][value=""]', (r) => { r.checked = true; });
    count();
    refresh();
  });
  on("keydown", (e) => {
    const q = $("q");
    if (e.key === "/" && q && !e.target.matches("input:not([type=checkbox], [type=radio]), select") && !(e.ctrlKey || e.metaKey || e.altKey)) {
      e.preventDefault();
      q.select();
    } else if (e.key === "Escape" && e.target === q) q.blur();
  });

  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone !== "UTC") all(".zone", (el) => write(el, "Times are in your zone, " + zone + "; tooltips show UTC."));
  settle();
  tick();
  setInterval(tick, 1000);
  connect();
})();
