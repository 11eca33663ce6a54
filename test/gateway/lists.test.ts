import { pipeline, Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import t from "tap";
import { grant, user } from "../access/kit.ts";
import { openStaffed, soon, succeed, tokenOf } from "../journeys/staff.ts";
import { open as openAnswer } from "../kit/client.ts";
import { queryHeaders } from "../kit/queries.ts";
import { words } from "../kit/words.ts";
import { checkRefusal, type GatewaySetup, select } from "./kit.ts";

const MANY = 5000;

const more = Array.from({ length: MANY }, (_, n) => {
  const name = `user${(n * 7919) % MANY}`;
  return user(name, "") + grant(name, n % 2 === 0 ? "main" : "side", "ReadOnly");
}).join("");

const staff = ["root * Owner", "olga side Owner", "rita main ReadOnly"];
const { gateway } = await openStaffed(t, staff, { more });

interface Listed {
  username: string;
  access: { database: string; role: string }[];
}

async function page(query: string, token: string): Promise<{ users: Listed[]; next?: string }> {
  const { status, text } = await gateway.get(`/api/users${query}`, token);
  if (status !== 200) throw new Error(text);
  return JSON.parse(text);
}

async function allPages(limit: number, token: string): Promise<[Listed[], number]> {
  const all: Listed[] = [];
  let after = "";
  for (let count = 1; ; count++) {
    const { users, next } = await page(`?limit=${limit}${after}`, token);
    all.push(...users);
    if (next === undefined) return [all, count];
    t.equal(next, users.at(-1)?.username);
    after = `&after=${next}`;
  }
}

t.test("an administrator sees every user once, in pages sorted by name", async (t) => {
  const root = await tokenOf(gateway, "root");
  const [all, pages] = await allPages(1000, root);
  const names = all.map(({ username }) => username);
  t.equal(names.length, MANY + 3);
  t.strictSame(names, [...new Set(names)].sort());
  t.equal(pages, 6);

  const { users, next } = await page("", root);
  t.equal(users.length, 100, "the default limit");
  t.equal(next, users[99]?.username);
  t.strictSame((await page("?limit=1&more=x", root)).users, [all[0]]);
  t.strictSame(await page(`?after=${names.at(-2)}`, root), {
    status: "success",
    users: all.slice(-1),
  });
  t.strictSame(await page("?after=zzz", root), { status: "success", users: [] });
  t.equal((await page("?after=idp:zed&limit=2", root)).users[0]?.username, "olga");
});

t.test("an Owner of one database sees only the users and grants of that database", async (t) => {
  const [all, pages] = await allPages(500, await tokenOf(gateway, "olga"));
  t.equal(all.length, MANY / 2 + 1);
  t.equal(pages, 6);
  t.ok(all.every(({ access }) => access.length === 1 && access[0]?.database === "side"));
});

t.test("an invalid page is refused before the caller is checked", async (t) => {
  for (const name of ["root", "rita"]) {
    const token = await tokenOf(gateway, name);
    for (const query of words(`
      limit=0 limit=1001 limit=-1 limit=1.5 limit=1e2 limit= limit=010 limit=1&limit=2 after=
      after=a%20b after=a&after=b after=%ff
    `)) {
      const answer = await gateway.get(`/api/users?${query}`, token);
      const message = "Invalid page: limit is 1 to 1000, and after is a username";
      checkRefusal(t, answer, { status: 400, code: "invalid_page", message });
    }
  }
  const answer = await gateway.get("/api/users", await tokenOf(gateway, "rita"));
  checkRefusal(t, answer, { status: 403, code: "role_insufficient" });
});

t.test("a long list is complete and sent in chunks", async (t) => {
  const root = await tokenOf(gateway, "root");
  const { headers, text } = await gateway.get("/api/access?limit=5", root);
  const { access, ...rest } = JSON.parse(text);
  t.strictSame(rest, { status: "success" });
  t.equal(access.length, MANY + 3, "the list of access has no pages");
  t.equal(headers.get("transfer-encoding"), "chunked");
  t.equal(headers.get("x-gatehouse-decision"), "allow");

  const head = await gateway.request("/api/access", {
    method: "HEAD",
    headers: { authorization: `Bearer ${root}` },
  });
  t.strictSame([head.status, head.text], [200, ""]);
  const own = JSON.parse((await gateway.get("/api/access", await tokenOf(gateway, "olga"))).text);
  t.equal(own.access.length, MANY / 2 + 1);
});

t.test("a client that leaves in the middle of a list causes no error", async (t) => {
  const root = await tokenOf(gateway, "root");
  const authorization = `Bearer ${root}`;
  await Promise.all(
    Array.from({ length: 10 }, async () => {
      const leaving = new AbortController();
      const { signal } = leaving;
      const answer = await fetch(`${gateway.url}/api/access`, {
        headers: { authorization },
        signal,
      });
      leaving.abort();
      await t.rejects(answer.text());
    }),
  );
  t.equal((await gateway.get("/api/me", root)).status, 200);
  t.notOk(gateway.service.log.some(({ msg }) => msg === "unexpected error"));
});

/** A thousand entries of this width are more than the buffers of a connection hold. */
const columns = Array.from({ length: 200 }, (_, at) => `"column_${at}_${"x".repeat(22)}"`);
const wide = `columns = [${columns}]\n\n`;
const wideEntries = Array.from({ length: 1000 }, (_, at) => {
  const entry = grant(`wide${at}`, "main", "ReadOnly").trimEnd();
  const ofGroup = entry.replace("username =", "group =");
  const group = `[[groups]]\nname = "wide${at}"\nmembers = []\n\n`;
  return `${user(`wide${at}`, "")}${group}${entry}\n${wide}${ofGroup}\n${wide}`;
}).join("");

/** Opens each route as its caller and reads nothing. */
async function openUnread(setting: GatewaySetup, callers: readonly (readonly [string, string])[]) {
  return Promise.all(
    callers.map(async ([route, name]) => {
      const headers = { authorization: `Bearer ${await tokenOf(setting.gateway, name)}` };
      const answer = await openAnswer(`${setting.gateway.url}${route}`, { headers });
      t.equal(answer.statusCode, 200, route);
      return { route, answer };
    }),
  );
}

t.test("a list that is still being sent is cut when its token or its right is lost", async (t) => {
  const managers = ["root * Owner", "rex * Owner", "kim * Owner"];
  const setting = await openStaffed(t, managers, { more: wideEntries });
  const { gateway, upstream } = setting;
  upstream.answer = (_, response) => {
    response.writeHead(200, { "Content-Type": "application/x-ndjson" });
    pipeline(Readable.from(Array(400).fill(Buffer.alloc(65_536, "x"))), response, () => {});
  };
  const export_ = async (name: string) => {
    const body = JSON.stringify(select);
    const headers = queryHeaders(await tokenOf(gateway, name));
    return {
      route: "/query",
      answer: await openAnswer(`${gateway.url}/query`, { method: "POST", headers, body }),
    };
  };
  const routes = ["/api/access", "/api/users?limit=1000", "/api/groups"];
  const revoked = await openUnread(
    setting,
    routes.map((route) => [route, "rex"]),
  );
  const lowered = await openUnread(
    setting,
    routes.map((route) => [route, "kim"]),
  );
  const open = [...revoked, ...lowered, await export_("rex"), await export_("kim")];
  const root = await tokenOf(gateway, "root");
  const kept = await openUnread(setting, [["/api/access", "root"]]);
  const isCut = () =>
    gateway.service.log.filter(({ msg }) => msg === "an open stream is cut").length;
  t.equal(isCut(), 0);
  await succeed(gateway.send("DELETE", "/api/users/rex/tokens", undefined, root));
  await succeed(gateway.send("DELETE", "/api/access/kim/*", undefined, root));
  await soon(t, "each is cut", () => isCut() === open.length);
  for (const { route, answer } of open)
    await t.rejects(buffer(answer), { code: "ECONNRESET" }, route);
  for (const { answer } of kept)
    t.equal(JSON.parse((await buffer(answer)).toString()).status, "success");
});
