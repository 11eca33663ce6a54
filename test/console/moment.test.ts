import { appendFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import {
  dateInWords,
  inZone,
  knownZone,
  localTime,
  readLocalTime,
  zoneInUse,
} from "../../src/features/console/moment.ts";
import { findEdges, roundMarks, spans } from "../../src/features/console/overview.ts";
import {
  auditFile,
  lookAt,
  openPage,
  signedIn,
  signInBrowser,
  startConsole,
  textOf,
} from "./kit.ts";

const HOUR_MS = 3_600_000;

t.test("local times have their offset and lead back to their moment", async (t) => {
  const summer = Date.UTC(2026, 6, 1, 22, 30);
  for (const [zone, text] of [
    ["Europe/Berlin", "2026-07-02 00:30 +02:00"],
    ["America/St_Johns", "2026-07-01 20:00 -02:30"],
    ["Asia/Kathmandu", "2026-07-02 04:15 +05:45"],
    ["UTC", "2026-07-01 22:30 UTC"],
  ] as const) {
    inZone(zone, () => {
      t.equal(dateInWords(summer), text);
      t.equal(readLocalTime(localTime(summer).replace(" ", "T")), summer, zone);
      t.ok(Number.isNaN(readLocalTime("2026-13-45T99:99")));
    });
  }
});

t.test("an offset is not a time zone, so that a browser cannot fill the memory", async (t) => {
  const now = Date.UTC(2026, 6, 1);
  const { heapUsed } = process.memoryUsage();
  for (let minutes = 0; minutes < 24 * 60; minutes += 1) {
    const time = new Date(minutes * 60_000).toISOString().slice(11, 16);
    for (const zone of [`+${time}`, `-${time}`]) {
      if (inZone(zone, zoneInUse) === zone) t.fail(`${zone} is a zone`);
      inZone(zone, () => localTime(now));
    }
  }
  t.equal(knownZone("+01:23"), undefined);
  t.equal(knownZone("-0200"), undefined);
  t.equal(knownZone("Etc/GMT+5"), "Etc/GMT+5");
  t.equal(knownZone("europe/berlin"), "Europe/Berlin");
  t.ok(process.memoryUsage().heapUsed - heapUsed < 50e6, "no formatter is kept for them");
});

t.test(
  "the periods of the overview are ascending and whole, also when clocks change",
  async (t) => {
    // Clocks go back in Berlin on 25 October 2026 at 01:00 UTC, and ahead on 29 March.
    const changes = [Date.UTC(2026, 9, 25, 1), Date.UTC(2026, 2, 29, 1)];
    for (const zone of ["Europe/Berlin", "Asia/Kathmandu", "UTC"]) {
      for (const change of changes) {
        for (let hour = -30; hour < 30; hour += 0.5) {
          const now = change + hour * HOUR_MS;
          for (const span of spans) {
            const edges = inZone(zone, () => findEdges(span, now));
            const begin = edges.at(-2) ?? 0;
            const isSound = begin <= now && now < (edges.at(-1) ?? 0);
            const isRising = edges.every((edge, at) => at === 0 || edge > (edges[at - 1] ?? 0));
            const name = `${zone} ${span.name} ${new Date(now).toISOString()}`;
            if (!isSound || !isRising) t.fail(name);
            const whole = span.name === "week" ? /(?:00|06|12|18):00:00$/ : /:\d\d:00$/;
            const texts = inZone(zone, () => edges.map(localTime));
            if (!texts.every((text) => whole.test(text))) t.fail(`${name}: ${texts}`);
          }
        }
      }
    }
  },
);

t.test("the marks of an axis are 1, 2 or 5 times a power of ten apart", async (t) => {
  t.strictSame(roundMarks(0, 1), [0, 1]);
  t.strictSame(roundMarks(3, 1), [0, 1, 2, 3]);
  t.strictSame(roundMarks(17, 1), [0, 5, 10, 15, 20]);
  t.strictSame(roundMarks(203, 1), [0, 100, 200, 300]);
  t.strictSame(roundMarks(0.6, 0.1).length, 4);
  for (let most = 1; most < 1e7; most = Math.ceil(most * 1.3)) {
    const marks = roundMarks(most, 1);
    const [, step = 0] = marks;
    t.match(String(step), /^[125]0*$/);
    t.ok((marks.at(-1) ?? 0) >= most && marks.length <= 6, String(most));
  }
});

t.test("times are in the server's zone, or in the one that a browser chooses", async (t) => {
  const { gateway, url } = await startConsole(t, {
    config: auditFile,
    env: { TZ: "America/St_Johns" },
  });
  const time = "2026-07-01T22:30:15.000Z";
  const line = { time, user: "admin", operations: [], operationCount: 0, msg: "request" };
  appendFileSync(path.join(gateway.home, "audit.log"), `${JSON.stringify(line)}\n`);
  const page = await openPage(t);
  await signInBrowser(page, url);
  await page.goto(`${url}/audit?since=2026-07-01&until=2026-07-02T12:00`);
  await page.getByRole("columnheader", { name: "Time (America/St_Johns)" }).waitFor();
  await page.getByText("2026-07-01 20:00:15").waitFor();
  await page.getByRole("link", { name: "Change the time zone" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Time zone" }).waitFor();
  await lookAt(t, page, "zone");
  await page.getByLabel("Time zone").fill("Mars/Olympus");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").getByText("There is no time zone Mars/Olympus").waitFor();
  await page.getByLabel("Time zone").fill("Europe/Berlin");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Audit" }).waitFor();
  const shown = page.locator("td time").first();
  t.equal(await shown.innerText(), "2026-07-02 00:30:15", "back on the same page");
  t.equal(await shown.getAttribute("title"), "2026-07-01 22:30:15 UTC");
  t.equal(await shown.getAttribute("datetime"), time);
  await page.goto(`${url}/audit?start=2026-07-02T00:30&until=2026-07-02T00:31&since=`);
  t.equal(await page.locator("td time").count(), 1, "From and Until are in the chosen zone");
  await page.goto(`${url}/audit?start=2026-07-01T22:30&until=2026-07-01T22:31&since=`);
  t.equal(await page.locator("td time").count(), 0);
  await page.goto(`${url}/state`);
  t.match(
    await page.getByRole("main").innerText(),
    /Times are in Europe\/Berlin \(UTC\+0[12]:00\)/,
  );

  const other = await signedIn(t, url);
  const { text } = await other.get("/state", {
    cookie: `${other.cookie}; gatehouse-console-zone=<x>`,
  });
  t.match(
    textOf(text),
    /Times are in America\/St_Johns \(UTC-0[23]:30\)/,
    "an unknown zone is ignored",
  );
  t.equal(
    (await other.post("/sessions/zone", { zone: "UTC", next: "//evil.example" })).headers.location,
    "/",
  );
});
