import t, { type Test } from "tap";
import { entriesIn } from "../../src/core/access/entries.ts";
import { readHolder } from "../../src/core/access/grant.ts";
import { ownGrants } from "../../src/core/access/snapshot.ts";
import type { Answer } from "../kit/gateway.ts";
import { openStaffed, putInForce, snapshotOn, textOf, tokenOf } from "./staff.ts";

const staff = [
  "root * Owner",
  "olga main Owner",
  "otto main Owner",
  "dora main DbAdmin",
  "rita main ReadOnly",
  "wim main ReadWrite",
  "tina main DbAdmin",
  "hank side ReadOnly",
  "tom side ReadOnly",
  "tess main Owner",
  "duo main ReadOnly",
  "mona main ReadOnly",
];

const entry = (username: string, database: string, more: string) =>
  `[[acl]]\nusername = "${username}"\ndatabase = "${database}"\n${more}\n\n`;

const soon = new Date(Date.now() + 3_600_000).toISOString();

const more = [
  entry("tina", "main", 'role = "ReadOnly"\ntables = ["secrets"]'),
  entry("tom", "main", 'role = "ReadWrite"\ntables = ["tickets"]\ncolumns = ["id"]'),
  entry("tess", "main", `role = "Owner"\nexpires = ${soon}`),
  entry("duo", "main", `role = "ReadWrite"\nexpires = ${soon}`),
  entry("mona", "main", 'role = "None"\ntables = ["a", "b"]'),
  entry("hank", "main", 'role = "Owner"\nrequire_approval = ["DELETE"]'),
  entry("tom", "*", 'role = "None"\ntables = ["audit_*"]'),
].join("");

const { gateway } = await openStaffed(t, staff, { more });
const root = await tokenOf(gateway, "root");
const original = textOf(gateway);
t.afterEach(() => putInForce(gateway, original));
const put = (place: string, body: unknown, token = root) =>
  gateway.send("PUT", `/api/access/${place}`, body, token);
const remove = (place: string, token = root) =>
  gateway.send("DELETE", `/api/access/${place}`, undefined, token);

const narrowed = {
  role: "ReadWrite",
  columns: ["id", "tenant", "status"],
  writable_columns: ["status"],
  row_filter: [
    { column: "tenant", cmp: "=", value: "@tenant" },
    { column: "id", cmp: "IN", value: [1, 2] },
  ],
  require_where: ["id"],
  max_rows: 200,
  max_changes: 20,
  require_approval: ["DELETE"],
  approvers: ["dora"],
  expires: "2126-12-24T18:00:00Z",
};

const heldBy = (username: string) => [
  ...entriesIn(ownGrants(snapshotOn(gateway), readHolder(username))),
];

function refusedWith(t: Test, answer: Answer, status: number, code: string, message?: RegExp) {
  t.strictSame([answer.status, answer.body.code], [status, code], answer.text);
  if (message !== undefined) t.match(answer.body.message, message);
}

async function listed(route: string, token: string): Promise<object[]> {
  const { text } = await gateway.send("GET", route, undefined, token);
  const { access, users } = JSON.parse(text);
  if (users !== undefined) return users[0].access;
  return access.filter(({ username = "rita" }) => username === "rita");
}

t.test("an entry with limits is set and listed for each kind of place", async (t) => {
  const places: [place: string, where: object][] = [
    ["rita/main", { database: "main" }],
    ["rita/main/tickets", { database: "main", tables: ["tickets"] }],
    ["rita/main/customer_*", { database: "main", tables: ["customer_*"] }],
    ["rita/%2A/customer%5F%2A", { database: "*", tables: ["customer_*"] }],
  ];
  const expected = places.map(([, where]) => ({ ...where, ...narrowed }));
  for (const [at, [place]] of places.entries()) {
    const answer = await put(place, narrowed);
    const access = [{ username: "rita", ...expected[at] }];
    t.strictSame(answer.body, { status: "success", access }, place);
  }
  const named = expected.map((entry) => ({ username: "rita", ...entry }));
  t.strictSame(await listed("/api/access", root), named);
  t.strictSame(await listed("/api/me", await tokenOf(gateway, "rita")), expected);
  t.strictSame(await listed("/api/users?limit=1&after=otto", root), expected);
  for (const [place] of places) t.equal((await remove(place)).status, 200, place);
  t.strictSame(heldBy("rita"), [], "each is removed, whatever it says");
});

t.test("integers in row filters keep all their digits", async (t) => {
  const value = "9007199254740993";
  const filter = `[{"column":"id","cmp":"=","value":${value}},{"column":"id","cmp":"IN","value":[-${value},1]}]`;
  const answer = await put("rita/main/t", `{"role":"ReadOnly","row_filter":${filter}}`);
  t.equal(answer.status, 200, answer.text);
  t.ok(answer.text.includes(filter), answer.text);
  const list = await gateway.send("GET", "/api/access", undefined, root);
  t.ok(list.text.includes(filter));
  t.equal(heldBy("rita").at(-1)?.rowFilter?.[0]?.value, BigInt(value));
});

t.test("an entry replaces all previous entries for its place, also temporary ones", async (t) => {
  t.equal((await put("duo/main", { role: "ReadOnly", max_rows: 5 })).status, 200);
  const grant = { holder: readHolder("duo"), database: "main", role: "ReadOnly", maxRows: 5 };
  t.strictSame(heldBy("duo"), [grant]);
  t.equal((await put("duo/main", { role: "ReadOnly", expires: soon })).status, 200);
  t.match(heldBy("duo"), [{ expires: Date.parse(soon), maxRows: undefined }]);
  t.equal((await put("tom/main/tickets", { role: "None", expires: soon })).status, 200);
  t.match(heldBy("tom")[1], { role: "None", columns: undefined });
});

t.test("setting only a role does not remove the limits of an entry", async (t) => {
  for (const place of ["duo/main", "tom/main/tickets", "hank/main", "tess/main"]) {
    refusedWith(t, await put(place, { role: "ReadOnly" }), 409, "entry_narrowed");
  }
  for (const place of ["mona/main/a", "mona/main/b"]) {
    refusedWith(t, await put(place, narrowed), 409, "entry_lists_tables");
    refusedWith(t, await remove(place), 409, "entry_lists_tables");
  }
  t.equal((await put("tina/main/secrets", { role: "ReadWrite" })).status, 200, "a table's role");
  refusedWith(t, await remove("mona/main/c"), 404, "grant_not_found");
  refusedWith(t, await put("unknown/main/t", narrowed), 404, "user_not_found");
  refusedWith(t, await put("rita/MAIN/t", narrowed), 409, "database_case_conflict");
});

// `test/access/parse.test.ts` has every key.
t.test("an entry that would be invalid in the file is refused with the reasons", async (t) => {
  const before = textOf(gateway);
  const bad: [fields: object, code: string, message: RegExp][] = [
    [{ role: "Reader" }, "invalid_role", /Owner, DbAdmin, ReadWrite, ReadOnly or None/],
    [{ columns: ["id"] }, "invalid_body", /role is missing/],
    [
      { role: "ReadOnly", tables: ["t"] },
      "invalid_body",
      /unknown field "tables"; allowed: role, columns, /,
    ],
    [{ role: "ReadOnly", max_row: 1 }, "invalid_body", /unknown field "max_row"/],
    [
      { role: "ReadOnly", row_filter: [{ column: "a", cmp: "<", value: "x" }], max_changes: "3" },
      "invalid_entry",
      /`row_filter` must be .*; `max_changes` must be/,
    ],
  ];
  for (const [fields, code, message] of bad) {
    refusedWith(t, await put("rita/main", fields), 400, code, message);
  }
  const owner = await put("rita/main/t", { role: "Owner" });
  refusedWith(t, owner, 400, "invalid_entry", /`tables` is allowed only with the role/);
  refusedWith(t, await put("rita/main", '{"role":"ReadOnly","role":"None"}'), 400, "duplicate_key");
  t.equal(textOf(gateway), before);
});

t.test("paths are matched as sent, and the table in a path is decoded once", async (t) => {
  const { url } = gateway;
  const send = async (method: string, path: string, token?: string) => {
    const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
    const answer = await fetch(url + path, { method, headers });
    return [answer.status, JSON.parse(await answer.text()).code, answer.headers.get("allow")];
  };
  const path = "/api/access/rita/main/tickets";
  const gone: [number, string, null] = [404, "not_found", null];
  t.strictSame(await send("PUT", `${path}/`), gone);
  t.strictSame(await send("PUT", `${path}/more`), gone);
  t.strictSame(await send("PUT", "/api/access/rita/main/"), gone);
  t.strictSame(await send("PUT", "/api//access/rita/main/tickets"), gone);
  t.strictSame(await send("PUT", "/api/%61ccess/rita/main/tickets", root), gone);
  t.strictSame(await send("POST", path), [405, "method_not_allowed", "PUT, DELETE"]);
  t.strictSame(await send("GET", path, root), [405, "method_not_allowed", "PUT, DELETE"]);
  t.strictSame(await send("PUT", path), [401, "unauthenticated", null]);
  t.strictSame(await send("PUT", path, root), [415, "unsupported_media_type", null]);
  for (const table of ["*", "a*b", ".a", "%2561", "a%20b", "%zz", "*a", "x".repeat(513)]) {
    refusedWith(t, await put(`rita/main/${table}`, narrowed), 400, "invalid_table");
    refusedWith(t, await remove(`rita/main/${table}`), 400, "invalid_table");
  }
});

t.test("an entry's table may have the name of an index, with dots", async (t) => {
  await putInForce(gateway, original);
  for (const table of ["logs-2026.11.28", "logs-2026.*", "x".repeat(512)]) {
    t.equal((await put(`rita/main/${table}`, { role: "ReadOnly" })).status, 200);
    t.ok(textOf(gateway).includes(`tables = ["${table}"]`));
    t.equal((await remove(`rita/main/${table}`)).status, 200);
  }
});

t.test("only a permanent Owner of the whole database counts as its last Owner", async (t) => {
  const side = `${original}${entry("rita", "side", `role = "Owner"\nexpires = ${soon}`)}`;
  const owned = side + entry("wim", "side", 'role = "Owner"');
  await putInForce(gateway, owned);
  const last = [
    () => put("wim/side", { role: "ReadOnly" }),
    () => put("wim/side", { role: "Owner", expires: soon }),
    () => remove("wim/side"),
    () => gateway.send("PATCH", "/api/users/wim", { disabled: true }, root),
  ];
  for (const act of last) refusedWith(t, await act(), 409, "last_owner");
  t.equal(textOf(gateway), owned);
  refusedWith(t, await put("root/*", { role: "Owner", expires: soon }), 409, "last_administrator");
  t.equal((await put("tina/side", { role: "Owner" })).status, 200);
  t.equal((await remove("wim/side")).status, 200, "another one is left");
});

const insufficient = "role_insufficient";
type Rule = [rule: string, caller: string, request: string, expected: number | string];

const column = JSON.stringify({ role: "ReadOnly", columns: ["id"] });
const ownerForNow = JSON.stringify({ role: "Owner", expires: soon });
const rows = '{"role":"ReadWrite","max_rows":9}';
const write = '{"role":"ReadWrite"}';

const rules: Rule[] = [
  ["a DbAdmin narrows what is below it", "dora", `PUT rita/main ${column}`, 200],
  ["and gives for a table", "dora", `PUT rita/main/t ${column}`, 200],
  ["and takes such an entry away", "dora", "DELETE tom/main/tickets", 200],
  ["it narrows no equal", "dora", `PUT tina/main ${column}`, insufficient],
  ["nor for a table", "dora", `PUT tina/main/t ${column}`, insufficient],
  ["nor changes the table of an equal", "dora", `PUT tina/main/secrets ${column}`, insufficient],
  ["nor removes it, behind which is more", "dora", "DELETE tina/main/secrets", insufficient],
  ["nor what is above it, for a time", "dora", `PUT tess/main ${column}`, insufficient],
  ["nor removes that", "dora", "DELETE tess/main", insufficient],
  ["it gives no Owner for a time", "dora", `PUT rita/main ${ownerForNow}`, insufficient],
  ["it gives nothing on *, not for a table either", "dora", `PUT rita/*/t ${column}`, "no_grant"],
  ["it gives its own up, and narrows it not", "dora", `PUT dora/main ${column}`, insufficient],
  ["an Owner removes the entry of a DbAdmin", "olga", "DELETE tina/main/secrets", 200],
  ["an Owner changes no other Owner", "olga", `PUT hank/main ${column}`, insufficient],
  ["an administrator does", "root", `PUT hank/main ${column}`, 200],
  ["a holder of columns does not widen them", "tom", `PUT tom/main/tickets ${rows}`, insufficient],
  ["nor removes the entry", "tom", "DELETE tom/main/tickets", insufficient],
  ["nor gives up None", "tom", "DELETE tom/*/audit_*", insufficient],
  ["who has an entry for a table grants nothing", "tina", `PUT rita/main ${column}`, insufficient],
  ["nor to itself", "tina", `PUT tina/main/secrets {"role":"ReadWrite"}`, insufficient],
  ["nor removes it", "tina", "DELETE tina/main/secrets", insufficient],
  ["who is Owner for a time grants nothing", "tess", `PUT rita/main ${column}`, insufficient],
  ["nor makes it last", "tess", `PUT tess/main {"role":"Owner","max_rows":1}`, "invalid_entry"],
  ["nor that", "tess", 'PUT tess/main {"role":"Owner","approvers":["root"]}', insufficient],
  ["an Owner who needs approval grants nothing", "hank", `PUT rita/main ${write}`, insufficient],
  ["who may write does not narrow others", "wim", `PUT rita/main ${column}`, insufficient],
  ["a user does not widen its own role", "wim", `PUT wim/main ${ownerForNow}`, insufficient],
];

t.test("only permitted callers set, change and remove entries with limits", async (t) => {
  const tokens = new Map<string, string>();
  for (const [rule, caller, request, expected] of rules) {
    const token = tokens.get(caller) ?? (await tokenOf(gateway, caller));
    tokens.set(caller, token);
    const [method = "", place = "", body] = request.split(" ");
    const answer = method === "PUT" ? await put(place, body, token) : await remove(place, token);
    const found = expected === 200 ? answer.status : answer.body.code;
    t.equal(found, expected, `${rule}: ${answer.text}`);
    if (expected === 200) await putInForce(gateway, original);
    else t.equal(textOf(gateway), original, "nothing was written");
  }
});
