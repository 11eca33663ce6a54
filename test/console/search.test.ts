import { appendFileSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import path from "node:path";
import t, { type Test } from "tap";
import { groupGrant } from "../access/kit.ts";
import { openStaffed } from "../journeys/staff.ts";
import type { ReceivedRequest } from "../kit/upstream.ts";
import {
  auditFile,
  consoleConfig,
  lookAt,
  openSignedIn,
  signedIn,
  staffedConsole,
  textOf,
  unescaped,
} from "./kit.ts";

const staff = ["root * Owner", "dora main DbAdmin", "rita main ReadOnly", "paul payroll ReadWrite"];
const more = `
[[groups]]
name = "readers"
members = ["rita", "staff:mia"]

${groupGrant("readers", "main", "ReadOnly", 'tables = ["tickets"]')}
${groupGrant("staff:engineering", "payroll", "ReadOnly")}
`;
const { gateway, url } = await staffedConsole(t, staff, auditFile, more);
const id = "5f0c2a4e-0000-4000-8000-000000000001";
const lines = [id, "of-payroll"].map((requestId, at) => {
  const operations = [{ operation: "Select", database: ["main", "payroll"][at], tables: [] }];
  const time = new Date().toISOString();
  return `${JSON.stringify({ time, requestId, user: "rita", operations, operationCount: 1, decision: "allow", status: 200, msg: "request" })}\n`;
});
appendFileSync(path.join(gateway.home, "audit.log"), lines.join(""));

async function search(_t: Test, username: string, asked: string) {
  const client = await signedIn(url, username);
  const { status, headers, text } = await client.get(`/search?q=${encodeURIComponent(asked)}`);
  const found = [...text.matchAll(/<tr role="row"><td.*?<\/tr>/g)].map(([row]) =>
    textOf(row).trim().replaceAll(/ +/g, " "),
  );
  return { status, location: headers.location, text: unescaped(text), found };
}

t.test("the search goes to the only user, group, database, table or request", async (t) => {
  for (const [asked, location] of [
    ["RITA", "/access/user?user=rita"],
    ["staff:mia", "/access/user?user=staff%3Amia"],
    ["engineering", "/access/user?user=group%3Astaff%3Aengineering"],
    ["ticke", "/access/table?place=main.tickets"],
    ["main.tick", "/access/table?place=main.tickets"],
    ["payroll", "/access/table?place=payroll"],
    [id, `/audit?request=${id}&since=`],
  ] as const) {
    const answer = await search(t, "root", asked);
    t.match(answer, { status: 303, location }, asked);
  }
});

t.test("several hits are listed, the exact one first", async (t) => {
  const { found } = await search(t, "root", "main");
  t.strictSame(found, ["main Database", "main.tickets Table"]);
  t.strictSame((await search(t, "root", "r")).found.at(-1), "payroll Database");
  const none = await search(t, "root", "staff:unknown");
  t.match(none.text, "grant access to <bdi>staff:unknown</bdi>");
  t.match(none.text, 'href="/audit?request=staff%3Aunknown&since="');
  t.match((await search(t, "root", "")).text, "Enter part of the name");
  t.notMatch((await search(t, "root", '"><x-y>')).text, /value=""><x-y>/);
});

t.test("the search finds only what the visitor may see", async (t) => {
  t.match(await search(t, "dora", "rita"), { location: "/access/user?user=rita" });
  for (const asked of ["paul", "payroll", "engineering", "of-payroll"]) {
    t.match(await search(t, "dora", asked), { status: 200, found: [] }, asked);
  }
  t.match(await search(t, "dora", id), { location: `/audit?request=${id}&since=` });
  t.equal((await search(t, "rita", "rita")).status, 403);
  const rita = await signedIn(url, "rita");
  t.notMatch((await rita.get("/overview")).text, 'action="/search"');
});

t.test("a search says when it could not read the audit", async (t) => {
  const { gateway, url } = await staffedConsole(t, staff, auditFile);
  writeFileSync(path.join(gateway.home, "audit.log.1.gz"), "not compressed");
  const root = await signedIn(url, "root");
  const { status, text } = await root.get(`/search?q=${id}`);
  t.equal(status, 200);
  t.match(textOf(text), /The audit was not searched, since it cannot be read now/);
  t.notMatch((await root.get("/search?q=nothing-")).text, /Some tables/);
});

t.test("a search asks all databases at once, and says when one was late", async (t) => {
  const { url, ...section } = await consoleConfig(auditFile);
  const names = Array.from({ length: 12 }, (_, at) => `db${at}`);
  const grants = ["root * Owner", ...names.map((name) => `rita ${name} ReadOnly`)];
  const { upstream } = await openStaffed(t, grants, section);
  let waiting = 0;
  let most = 0;
  upstream.answer = ({ url }: ReceivedRequest, response: ServerResponse) => {
    // All tables of the last databases take for ever.
    if (/^\/schema\/db(?:[89]|1\d)/.test(url)) {
      most = Math.max(most, ++waiting);
      response.once("close", () => waiting--);
      return;
    }
    const data = url === "/schema" ? { databases: names } : { tables: ["tickets"] };
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ status: "success", data }));
  };
  const root = await signedIn(url, "root");
  const { text } = await root.get("/search?q=tickets");
  t.equal(most, 4, "all that are late are asked at one time");
  t.equal(text.match(/>db\d\.tickets</g)?.length, 8);
  t.match(textOf(text), /Some tables were not searched, since a database did not list them/);
  upstream.answer = () => {};
  t.match(textOf((await root.get("/search?q=unknown-name")).text), /Some tables were not searched/);
});

t.test("the search box works by keyboard on every page", async (t) => {
  const page = await openSignedIn(t, url, "/", "root");
  await page.getByRole("searchbox", { name: "Search" }).focus();
  await page.keyboard.type("ma");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Search" }).waitFor();
  t.equal(await page.getByRole("searchbox").inputValue(), "ma");
  await lookAt(t, page, "search");
  await page.goto(`${url}/search?q=nothing`);
  await lookAt(t, page, "search-none");
  await page.getByRole("searchbox").fill(id);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Audit" }).waitFor();
  t.equal(await page.getByLabel("Request id").inputValue(), id);
  await page.getByText("Select main").waitFor();
  await lookAt(t, page, "search-request");
});
