/** Takes the pictures for the docs: `npm run screenshots`. */
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { BrowserContextOptions } from "playwright-core";
import t from "tap";
import { grant } from "../access/kit.ts";
import { passwordOf, staffedHome, tokenOf } from "../journeys/staff.ts";
import { startGateway, type TestGateway } from "../kit/gateway.ts";
import { columnsOf } from "../kit/queries.ts";
import { launch } from "../oauth/chromium.ts";
import { obtainTokens } from "../oauth/flow.ts";
import { registered } from "../oauth/kit.ts";
import { auditFile, ConsoleClient, consoleConfig, signInBrowser } from "./kit.ts";

const images = path.join(import.meta.dirname, "../../docs/images");

const grants = [
  "mara * Owner",
  "dave support DbAdmin",
  "lena shop ReadWrite",
  "lena analytics ReadOnly",
  "noah support ReadWrite",
  "olga analytics ReadOnly",
  "finn shop ReadOnly",
  "ines support ReadOnly",
  "theo shop DbAdmin",
  "yuki analytics ReadWrite",
];
/** In three days, on the hour. */
function soon(): string {
  const hour = Math.floor(Date.now() / 3_600_000) + 72;
  return new Date(hour * 3_600_000).toISOString().replace(".000", "");
}

const limited = `
[[users]]
username = "support-bot"

[[acl]]
username = "support-bot"
database = "support"
role = "ReadWrite"
tables = ["tickets"]
max_rows = 200
require_approval = ["DELETE"]
approvers = ["dave"]

${grant("support-bot", "support", "None")}
[[users]]
username = "rita"
attributes = { tenant = "acme" }

[[acl]]
username = "rita"
database = "support"
role = "ReadWrite"
tables = ["customer_*"]
columns = ["id", "name", "city"]
row_filter = [{ column = "tenant", cmp = "=", value = "@tenant" }]

${grant("rita", "support", "ReadOnly")}
${grant("theo", "support", "ReadOnly", `expires = ${soon()}`)}
${grant("corp:jane.doe", "analytics", "ReadOnly", "max_rows = 1000")}
`;

const tickets = { database: "support", table: "tickets" };
const subjects = [
  "Invoice is missing",
  "Password reset",
  "Parcel is late",
  "Wrong address",
  "Refund please",
  "Cannot log in",
  "Two parcels",
  "Change of name",
  "Gift card",
  "App is slow",
];

/** Lines of an audit of the last day, busiest in the afternoon, for the chart. */
function pastLines(): string {
  const lines: string[] = [];
  for (let hoursAgo = 23; hoursAgo >= 1; hoursAgo--) {
    const hour = Math.floor(Date.now() / 3_600_000) - hoursAgo;
    const count = Math.round(120 + 80 * Math.sin(((hour % 24) - 8) / 3.8));
    for (let at = 0; at < count; at++) {
      const time = new Date(hour * 3_600_000 + (at * 3_600_000) / count).toISOString();
      const isDenied = (at * 7 + hour) % 41 === 0;
      const [user, table] = at % 2 === 0 ? ["noah", "invoices"] : ["finn", "tickets"];
      const operations = [
        { operation: "Select", database: isDenied ? "shop" : "support", tables: [table] },
      ];
      const decision = isDenied
        ? { decision: "deny", reason: "no_grant", status: 403, ms: 0.4 }
        : {
            decision: "allow",
            status: 200,
            ms: 2 + (count / 40) * (1 + ((at * 13) % 20) ** 2 / 90),
          };
      const line = { level: "info", time, user, via: "query", operations, operationCount: 1 };
      lines.push(JSON.stringify({ ...line, ...decision, msg: "request" }));
    }
  }
  return `${lines.join("\n")}\n`;
}

async function good(answer: Promise<{ status: number; text: string }>): Promise<void> {
  const { status, text } = await answer;
  if (status >= 300) throw new Error(text);
}

/** Creates tickets, and sends queries of several users. */
async function work(gateway: TestGateway, root: string): Promise<void> {
  const ask = (query: object, token: string) => gateway.query(query, token);
  for (const database of ["support", "shop", "analytics"]) {
    await good(ask({ CreateDatabase: { database } }, root));
  }
  const columns = columnsOf({ id: "int", status: "text", subject: "text" });
  await good(ask({ CreateTable: { ...tickets, columns } }, root));
  const values = subjects.map((subject, at) => ({
    id: 4711 + at,
    subject,
    status: at % 3 === 0 ? "spam" : "open",
  }));
  await good(ask({ Insert: { ...tickets, values } }, root));
  const noah = await tokenOf(gateway, "noah");
  const ines = await tokenOf(gateway, "ines");
  const open = { column: "status", cmp: "=", value: "open" };
  const list = { database: "support", from: "tickets", columns: ["id", "subject"], where: open };
  const one = { column: "id", cmp: "=", value: 4712 };
  await ask({ Select: list }, ines);
  await ask({ Update: { ...tickets, set: { status: "closed" }, where: one } }, noah);
  await ask({ Delete: { ...tickets, where: one } }, ines);
  await ask({ Select: { ...list, database: "shop" } }, noah);
  await ask({ Select: list }, noah);
}

/** Changes users and grants. */
async function change(gateway: TestGateway, root: string): Promise<void> {
  const put = (place: string, entry: object) =>
    good(gateway.send("PUT", `/api/access/${place}`, entry, root));
  await put("finn/shop", { role: "ReadWrite", max_changes: 20 });
  await put("yuki/analytics", { role: "ReadOnly" });
  await put("ines/support/tickets", { role: "ReadWrite", writable_columns: ["status"] });
  await good(gateway.send("PATCH", "/api/users/olga", { disabled: true }, root));
}

/** Sends a query that requires approval. @returns the path of its page */
async function askForApproval(gateway: TestGateway, token: string): Promise<string> {
  const where = { column: "status", cmp: "=", value: "spam" };
  const { body } = await gateway.query({ Delete: { ...tickets, where } }, token);
  return new URL(String(Object(body.approval).url)).pathname;
}

const agents = {
  dave: "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.1 Safari/605.1.15",
  lena: "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0",
  noah: "Mozilla/5.0 (Linux; Android 16; Pixel 9) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Mobile Safari/537.36",
};

/** Signs users in from several addresses and browsers, and connects an app. */
async function signIn(gateway: TestGateway, url: string): Promise<void> {
  let last = 20;
  for (const [name, agent] of Object.entries(agents)) {
    const client = new ConsoleClient(url);
    await client.get("/sign-in");
    const form = { username: name, password: passwordOf(name), next: "/" };
    const headers = { "user-agent": agent, "x-forwarded-for": `203.0.113.${last++}` };
    await client.post("/sign-in", form, headers);
  }
  const clientId = await registered(gateway);
  const user = { username: "lena", password: passwordOf("lena") };
  await obtainTokens(gateway, { clientId, ...user, database: "analytics", reach: "read" });
}

const wide = { viewport: { width: 1200, height: 700 } };
const phone = { viewport: { width: 390, height: 760 }, colorScheme: "dark" } as const;

t.test("pictures of the console", async (t) => {
  const home = await staffedHome(t, grants, limited);
  writeFileSync(path.join(home, "audit.log"), pastLines(), { mode: 0o600 });
  const proxies = '[server]\ntrusted_proxies = ["127.0.0.1/32"]\n';
  const { config, url } = await consoleConfig(`${proxies}${auditFile}`);
  const gateway = await startGateway(t, { home, config });
  const root = await tokenOf(gateway, "mara");
  await work(gateway, root);
  await change(gateway, root);
  await signIn(gateway, url);
  const password = { new_password: passwordOf("support-bot") };
  await good(gateway.send("PUT", "/api/users/support-bot/password", password, root));
  const approval = await askForApproval(gateway, await tokenOf(gateway, "support-bot"));

  mkdirSync(images, { recursive: true });
  const browser = await launch(t);
  const signedInState = async (name: string) => {
    const context = await browser.newContext();
    await signInBrowser(await context.newPage(), url, name);
    return context.storageState();
  };
  const mara = await signedInState("mara");
  const take = async (name: string, route: string, options: BrowserContextOptions = {}) => {
    const still = { ...wide, reducedMotion: "reduce", storageState: mara } as const;
    const context = await browser.newContext({ ...still, ...options });
    const page = await context.newPage();
    await page.goto(`${url}${route}`);
    const picture = await page.screenshot({ path: path.join(images, `${name}.png`) });
    t.ok(picture.length < 100_000, `${name}.png: ${picture.length} bytes`);
    await context.close();
  };
  await take("console-overview", "/overview", { viewport: { width: 1200, height: 1000 } });
  await take("console-access", "/access");
  const form = "/access/entry?user=rita&database=support&table=customer_*";
  await take("console-grant", form, { viewport: { width: 1200, height: 660 } });
  await take("console-approval", approval, { storageState: await signedInState("dave") });
  await take("console-audit", "/audit?table=tickets");
  await take("console-state", "/state");
  await take("console-sessions", "/sessions");
  await take("console-phone", "/access/user?user=rita", phone);
});
