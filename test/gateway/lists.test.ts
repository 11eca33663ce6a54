import t from "tap";
import { grant, user } from "../access/kit.ts";
import { openStaffed, tokenOf } from "../journeys/staff.ts";
import { checkRefusal } from "./kit.ts";

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

async function get(route: string, token: string) {
  return gateway.request(route, { headers: { authorization: `Bearer ${token}` } });
}

async function page(query: string, token: string): Promise<{ users: Listed[]; next?: string }> {
  const { status, text } = await get(`/api/users${query}`, token);
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
    for (const query of [
      ...["limit=0", "limit=1001", "limit=-1", "limit=1.5", "limit=1e2", "limit=", "limit=010"],
      ...["limit=1&limit=2", "after=", "after=a%20b", "after=a&after=b", "after=%ff"],
    ]) {
      const answer = await get(`/api/users?${query}`, token);
      const message = "Invalid page: limit is 1 to 1000, and after is a username";
      checkRefusal(t, answer, { status: 400, code: "invalid_page", message });
    }
  }
  const answer = await get("/api/users", await tokenOf(gateway, "rita"));
  checkRefusal(t, answer, { status: 403, code: "role_insufficient" });
});

t.test("a long list is complete and sent in chunks", async (t) => {
  const root = await tokenOf(gateway, "root");
  const { headers, text } = await get("/api/access?limit=5", root);
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
  const own = JSON.parse((await get("/api/access", await tokenOf(gateway, "olga"))).text);
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
  t.equal((await get("/api/me", root)).status, 200);
  t.notOk(gateway.service.log.some(({ msg }) => msg === "unexpected error"));
});
