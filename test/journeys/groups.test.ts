import t from "tap";
import { grant, groupGrant, user } from "../access/kit.ts";
import { auditOf } from "../kit/gateway.ts";
import { openStaffed, putInForce, textOf, tokenOf } from "./staff.ts";

const staff = [
  "root * Owner",
  "olga main Owner",
  "dora main DbAdmin",
  "rita main ReadOnly",
  "ruth main ReadOnly",
];
const more = `
[[groups]]
name = "leads"
members = ["rita"]

${groupGrant("leads", "*", "Owner")}
${groupGrant("staff:all", "main", "None")}
${grant("staff:boss", "main", "Owner")}
`;
const { gateway } = await openStaffed(t, staff, { more });
const original = textOf(gateway);
t.afterEach(() => putInForce(gateway, original));

async function send(caller: string, method: string, path: string, body?: object) {
  return gateway.send(method, `/api/groups${path}`, body, await tokenOf(gateway, caller));
}

t.test("an administrator makes, changes, lists and removes a group", async (t) => {
  const members = ["rita", "staff:Zoë #EXT#"];
  const made = await send("root", "PUT", "/analysts", { members: [...members, "rita"] });
  t.match(made, { status: 200, body: { group: { name: "analysts", members, access: [] } } });
  const given = await send("root", "PUT", "/analysts/access/main/t_*", { role: "ReadOnly" });
  const entry = { database: "main", role: "ReadOnly", tables: ["t_*"] };
  t.match(given.body, { access: [{ group: "analysts", username: undefined, ...entry }] });
  await send("root", "PUT", `/${encodeURIComponent("staff:R/D Süd")}/access/main`, {
    role: "ReadOnly",
  });
  const { body } = await send("root", "GET", "");
  t.match(body, {
    groups: [
      { name: "analysts", members, access: [entry] },
      { name: "leads", members: ["rita"] },
      { name: "staff:R/D Süd", members: undefined, access: [{ role: "ReadOnly" }] },
      { name: "staff:all" },
    ],
  });
  t.equal((await send("root", "DELETE", "/analysts/access/main/t_*")).status, 200);
  t.equal((await send("root", "DELETE", "/analysts")).status, 200);
  t.notMatch(textOf(gateway), /analysts|t_\*/);
});

// `test/access/groups.test.ts` has every kind of name.
t.test("an entry may be for any name that a provider gives a group", async (t) => {
  for (const name of ['staff: R&D, "EU" (core) \\ 100%;?x=1#y/../z ', "staff:.."]) {
    const place = `/${encodeURIComponent(name)}/access/main`;
    const given = await send("root", "PUT", `${place}/t_*`, { role: "ReadOnly" });
    t.match(given, { status: 200, body: { access: [{ group: name, tables: ["t_*"] }] } }, place);
    t.match((await auditOf(gateway, given)).changes, [{ group: name }]);
    const limits = { role: "ReadOnly", require_approval: ["SELECT"], approvers: [`group:${name}`] };
    t.match(await send("root", "PUT", place, limits), { status: 200 });
    t.equal((await send("root", "DELETE", `${place}/t_*`)).status, 200);
    t.equal((await send("root", "DELETE", place)).status, 200);
  }
  t.equal(textOf(gateway).trimEnd(), original.trimEnd());
  for (const name of ["staff:", "staff:a\u0308", "a,b"]) {
    const place = `/${encodeURIComponent(name)}/access/main`;
    const refused = await send("root", "PUT", place, { role: "ReadOnly" });
    t.match(refused, { status: 400, body: { code: "invalid_group" } });
  }
});

t.test("entries of groups obey the rights of entries of users", async (t) => {
  await send("root", "PUT", "/analysts", { members: ["rita"] });
  await send("root", "PUT", "/robots", { members: [] });
  await send("root", "PUT", "/bosses", { members: ["olga"] });
  await send("root", "PUT", "/analysts/access/main", { role: "ReadOnly" });
  const cases: [caller: string, method: string, path: string, role: string, expected: string][] = [
    ["dora", "PUT", "/robots", "", "role_insufficient"],
    ["dora", "DELETE", "/robots", "", "role_insufficient"],
    ["rita", "PUT", "/robots/access/main", "ReadOnly", "role_insufficient"],
    ["dora", "PUT", "/robots/access/main", "ReadWrite", "200"],
    ["dora", "PUT", "/robots/access/main", "Owner", "role_insufficient"],
    ["dora", "DELETE", "/robots/access/main", "", "200"],
    // Owners in the group could be lowered, or be what is left.
    ["dora", "PUT", "/bosses/access/main", "ReadOnly", "role_insufficient"],
    ["dora", "DELETE", "/analysts/access/main", "", "role_insufficient"],
    ["dora", "DELETE", "/staff:all/access/main", "", "role_insufficient"],
    ["dora", "PUT", "/staff:all/access/main", "ReadOnly", "role_insufficient"],
    ["dora", "PUT", "/staff:some/access/main", "None", "role_insufficient"],
    ["dora", "PUT", "/staff:some/access/main", "ReadOnly", "200"],
    ["dora", "PUT", "/robots/access/main", "None", "200"],
    ["olga", "DELETE", "/staff:all/access/main", "", "200"],
    ["olga", "PUT", "/robots/access/other", "ReadOnly", "no_grant"],
    ["root", "PUT", "/a:b/access/main", "ReadOnly", "200"],
    ["root", "PUT", "/a:b", "", "invalid_group"],
    ["root", "DELETE", "/ghosts", "", "group_not_found"],
    ["root", "DELETE", "/ghosts/access/main", "", "grant_not_found"],
  ];
  for (const [caller, method, path, role, expected] of cases) {
    const body = role === "" ? { members: [] } : { role };
    const answer = await send(caller, method, path, method === "PUT" ? body : undefined);
    t.equal(String(answer.body.code ?? answer.status), expected, `${caller} ${method} ${path}`);
  }
  const unknown = await send("root", "PUT", "/analysts", { members: ["rita", "ghost"] });
  t.match(unknown, { status: 404, body: { code: "user_not_found", message: /ghost/ } });
});

t.test("an entry that hides what other groups of a token give is judged by it", async (t) => {
  const owned = [
    groupGrant("staff:owners", "main", "Owner"),
    grant("staff:kim", "main", "None"),
    grant("staff:lee", "main", "ReadOnly"),
  ];
  const file = original.replace(groupGrant("staff:all", "main", "None"), owned.join(""));
  const administered = `${file}${groupGrant("staff:admins", "*", "Owner")}`;
  const expires = new Date(Date.now() + 60_000).toISOString();
  const [kim, lee, max] = ["kim", "lee", "max"].map((one) => `/access/staff:${one}/main`);
  const some = "/groups/staff:some/access/main";
  const cases: [
    text: string,
    caller: string,
    path: string,
    body: object | undefined,
    to: string,
  ][] = [
    // Kim may be an owner, by a token.
    [file, "dora", `${kim}`, undefined, "role_insufficient"],
    [file, "dora", `${kim}`, { role: "ReadWrite", expires }, "role_insufficient"],
    [file, "dora", `${max}`, { role: "ReadOnly" }, "role_insufficient"],
    [file, "dora", `${max}/t`, { role: "ReadOnly" }, "role_insufficient"],
    // Of plain entries of groups, the widest counts.
    [file, "dora", some, { role: "ReadOnly" }, "200"],
    [administered, "dora", some, { role: "ReadOnly" }, "role_insufficient"],
    [administered, "olga", some, { role: "ReadOnly" }, "200"],
    [file, "dora", `${lee}`, { role: "ReadWrite" }, "200"],
    [file, "olga", `${kim}`, undefined, "200"],
  ];
  for (const [text, caller, path, body, expected] of cases) {
    await putInForce(gateway, text);
    const method = body === undefined ? "DELETE" : "PUT";
    const answer = await gateway.send(method, `/api${path}`, body, await tokenOf(gateway, caller));
    t.equal(String(answer.body.code ?? answer.status), expected, `${caller} ${method} ${path}`);
  }
});

t.test("a manager sees groups only by the entries on the manager's databases", async (t) => {
  await send("root", "PUT", "/analysts", { members: ["rita"] });
  await send("root", "PUT", "/analysts/access/main", { role: "ReadOnly" });
  await send("root", "PUT", "/analysts/access/other", { role: "ReadOnly" });
  const { body } = await send("dora", "GET", "");
  t.match(body.groups, [
    { name: "analysts", access: [{ database: "main" }] },
    { name: "staff:all" },
  ]);
  t.equal([body.groups].flat().length, 2);
  t.match(await send("ruth", "GET", ""), { status: 403 });
});

// `test/access/effective.test.ts` has the rows.
t.test("effective access counts groups, for those who may see it", async (t) => {
  const analysts = '\n[[groups]]\nname = "analysts"\nmembers = ["anna", "staff:zed"]\n\n';
  const entries = ["main", "side"].map((database) => groupGrant("analysts", database, "ReadOnly"));
  await putInForce(gateway, original + analysts + entries.join("") + user("anna", ""));
  const ask = async (caller: string, name: string, query = "?effective=true") => {
    const path = `/api/users/${encodeURIComponent(name)}/access${query}`;
    return gateway.send("GET", path, undefined, await tokenOf(gateway, caller));
  };
  const [main, side] = ["main", "side"].map((database) => {
    return { database, operations: ["SELECT"], entry: `${database} (group analysts)` };
  });
  for (const name of ["anna", "staff:zed"]) {
    t.strictSame((await ask("root", name)).body.access, [main, side], name);
    t.strictSame((await ask("olga", name)).body.access, [main], "only on the manager's database");
  }
  const plain = ["main", "side"].map((database) => {
    return { group: "analysts", database, role: "ReadOnly" };
  });
  t.strictSame((await ask("root", "anna", "")).body.access, plain);
  const listed = await gateway.send("GET", "/api/users", undefined, await tokenOf(gateway, "olga"));
  t.match(listed.body.users, [{ username: "anna", access: [plain[0]] }]);
  const kim = (await ask("root", "staff:kim", "?effective=true&groups=staff:all")).body.access;
  t.match(kim, [{ database: "main", operations: [], reason: "role_insufficient" }]);
  t.match((await ask("ruth", "ruth")).body.access, [{ operations: ["SELECT"], entry: "main" }]);
  t.match(await ask("ruth", "anna"), { status: 403, body: { code: "role_insufficient" } });
  t.match(await ask("olga", "root"), { status: 404, body: { code: "user_not_found" } });
  t.match(await ask("root", "nobody"), { status: 404, body: { code: "user_not_found" } });
  const message = /^Invalid groups: only those of an issuer, /;
  t.match(await ask("root", "anna", "?groups=analysts"), { status: 400, body: { message } });
  const limited = await tokenOf(gateway, "rita", "main");
  const rows = await gateway.send(
    "GET",
    "/api/users/rita/access?effective=true",
    undefined,
    limited,
  );
  t.match(rows.body.access, [{ database: "main" }, { database: "*" }]);
});

t.test("a name in a group is added only by those who may give the group's entries", async (t) => {
  await putInForce(
    gateway,
    original.replace('members = ["rita"]', 'members = ["rita", "mallory"]'),
  );
  const user = { username: "mallory", password: "long enough", role: "ReadOnly", database: "main" };
  const add = async (caller: string) =>
    gateway.send("POST", "/api/users", user, await tokenOf(gateway, caller));
  t.match(await add("olga"), { status: 403 });
  t.match(await add("root"), { status: 201 });
});

// `test/access/remaining-owners.test.ts` has every way.
t.test("the last user who administers by a group is protected", async (t) => {
  const withoutOwn = original.replace(
    'username = "root"\ndatabase = "*"\nrole = "Owner"',
    'username = "root"\ndatabase = "*"\nrole = "ReadOnly"',
  );
  await putInForce(gateway, withoutOwn);
  const token = await tokenOf(gateway, "rita");
  const text = textOf(gateway);
  const cases: [method: string, path: string, body?: object][] = [
    ["DELETE", "/groups/leads"],
    ["PATCH", "/users/rita", { disabled: true }],
  ];
  for (const [method, path, body] of cases) {
    const answer = await gateway.send(method, `/api${path}`, body, token);
    const refused = { status: 409, body: { code: "last_administrator" } };
    t.match(answer, refused, `${method} ${path}`);
  }
  t.equal(textOf(gateway), text);
});

t.test("changes of groups are in the audit", async (t) => {
  const answers = [
    await send("root", "PUT", "/analysts", { members: ["rita"] }),
    await send("root", "PUT", "/analysts/access/main", { role: "ReadOnly" }),
    await send("root", "PUT", "/analysts", { members: ["ruth", "staff:bob"] }),
    await send("root", "DELETE", "/analysts"),
  ];
  const lines = await Promise.all(answers.map((answer) => auditOf(gateway, answer)));
  t.match(
    lines.flatMap(({ changes }) => changes),
    [
      { change: "group added", group: "analysts", members: ["rita"] },
      { change: "grant added", group: "analysts", entry: "main", role: "ReadOnly" },
      {
        change: "group changed",
        group: "analysts",
        members: ["ruth", "staff:bob"],
        left: ["rita"],
      },
      { change: "group removed", group: "analysts", left: ["ruth", "staff:bob"] },
    ],
  );
});

t.test("effective access tells a manager nothing of entries on other databases", async (t) => {
  const hidden = '\n[[groups]]\nname = "hidden"\nmembers = ["anna"]\n\n';
  const bounded = (keys: string) => `[[boundaries]]\nvia = "mcp"\ndatabase = "main"\n${keys}\n\n`;
  await putInForce(
    gateway,
    [
      original,
      hidden,
      user("anna", ""),
      grant("anna", "*", "ReadOnly", "max_rows = 7"),
      grant("anna", "main", "ReadOnly", 'tables = ["t"]'),
      bounded('group = "hidden"\nrole = "None"'),
    ].join(""),
  );
  const table = { database: "main", table: "t" };
  const rows = (boundary: string) => [
    { ...table, via: "query", entry: "main.t", boundary: undefined },
    { ...table, via: "mcp", operations: [], boundary },
  ];
  const ask = async (caller: string) => {
    const path = "/api/users/anna/access?effective=true";
    const { body } = await gateway.send("GET", path, undefined, await tokenOf(gateway, caller));
    return [body.access].flat();
  };
  const seen = await ask("olga");
  t.equal(seen.length, 2);
  t.match(seen, rows("mcp database=main"));
  const all = await ask("root");
  t.match(all.slice(1), rows("mcp group=hidden database=main"));
  t.match(all.slice(3), [{ database: "main", entry: "*", max_rows: 7 }, { via: "mcp" }]);
});
