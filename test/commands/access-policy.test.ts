import { appendFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { grant, user } from "../access/kit.ts";
import { type Installation, install } from "./kit.ts";
import { policy } from "./policy.ts";

const select = (columns: string, more = "") =>
  `{"Select": {"database": "main", "from": "tickets", "columns": ${columns}${more}}}`;

function explain(gatehouse: Installation, flags: string, query: string) {
  return gatehouse.run(`access explain ${flags}`, query);
}

t.test("access explain says what decides, and prints the bytes that would go up", async (t) => {
  const gatehouse = install(t, policy);
  const query = select('["id"]', ', "where": {"column": "id", "cmp": "=", "value": 1.0}');
  const filter = '{"column":"tenant","cmp":"=","value":"acme"}';
  const up = query.replace(
    '{"column": "id", "cmp": "=", "value": 1.0}',
    (own) => `{"and":[${filter},${own}]}`,
  );
  const allowed = await explain(gatehouse, "rita", query);
  t.strictSame(allowed, {
    code: 0,
    stdout: `allowed: rita\nSelect on main.tickets: ReadWrite by the entry for main.tickets; added: ${filter}\n\n${up}\n`,
    stderr: "",
  });
  const json = JSON.parse((await explain(gatehouse, "rita --json", query)).stdout);
  t.match(json, { user: "rita", via: "query", allowed: true, code: "allowed", body: up });
  t.match(json.decisions, [{ operation: "Select", added: [JSON.parse(filter)] }]);

  const star = await explain(gatehouse, "rita", select('["*"]'));
  t.equal(star.code, 1);
  t.match(star.stdout, /^denied: rita: columns_required: .*"id", "tenant", "status"/);
  const limit = await explain(gatehouse, "rita --via mcp --json", query);
  t.match(JSON.parse(limit.stdout), {
    allowed: false,
    code: "limit_required",
    decisions: [{ boundary: "mcp" }],
  });
  const plain = select('["*"]');
  t.equal((await explain(gatehouse, "alice", plain)).stdout.split("\n\n")[1], `${plain}\n`);
});

t.test("access explain prints the form that the configuration sends up", async (t) => {
  const gatehouse = install(t, policy);
  const url = "http://127.0.0.1:9";
  const section = `[upstream]\nurl = "${url}"\nquery_form = "op"\n`;
  appendFileSync(path.join(gatehouse.home, "gateway.toml"), section);
  const { stdout } = await explain(gatehouse, "alice --json", select('["id"]'));
  const { body } = JSON.parse(stdout);
  t.strictSame(JSON.parse(body), {
    ...{ op: "select", database: "main", from: "tickets" },
    columns: ["id"],
  });
  const full = select('["id"]', ', "distinct": true');
  t.match((await explain(gatehouse, "alice", full)).stdout, /^denied: alice: unknown_field/);
});

t.test("access explain tells what is no query, who is nobody, and what waits", async (t) => {
  const gatehouse = install(t, policy);
  t.match(
    (await explain(gatehouse, "rita", '{"Select": {}}')).stdout,
    /^denied: rita: missing_field/,
  );
  t.match(await explain(gatehouse, "nobody", select('["id"]')), {
    code: 1,
    stdout: /user_not_found/,
  });
  t.match((await explain(gatehouse, "bob", select('["id"]'))).stdout, /user_disabled/);
  const remove = '{"Delete": {"database": "main", "table": "tickets", "where": null}}';
  t.match(await explain(gatehouse, "rita", remove), {
    code: 1,
    stdout:
      /^denied: rita: approval_required\n.*\nDELETE needs approval by alice \(main\.tickets\)\n$/,
  });
  const batch = `{"Batch": [${select('["id"]')}, ${select('["secret"]')}]}`;
  t.match(
    (await explain(gatehouse, "rita", batch)).stdout,
    /^denied: rita: batch_member_denied \(element 1: column_denied\): /,
  );
});

const expectations = `# What support may do.
[[expect]]
user = "rita"
query = '${select('["id"]')}'
allowed = true

[[expect]]
user = "rita"
query = '${select('["*"]')}'
allowed = false
code = "columns_required"

[[expect]]
user = "rita"
via = "mcp"
query = '${select('["id"]', ', "limit": 10')}'
allowed = true
`;

t.test("access test holds a policy against its expectations", async (t) => {
  const gatehouse = install(t, policy);
  const file = path.join(gatehouse.home, "policy.test.toml");
  writeFileSync(file, expectations);
  t.strictSame(await gatehouse.run("access test", undefined, file), {
    code: 0,
    stdout: "3 expectations, 0 differ\n",
    stderr: "",
  });
  const proposed = path.join(gatehouse.home, "proposed.toml");
  writeFileSync(proposed, policy.replace('columns = ["id", "tenant", "status"]\n', ""), {
    mode: 0o664,
  });
  const differing = await gatehouse.run("access test", undefined, file, "--file", proposed);
  t.strictSame(differing, {
    code: 1,
    stdout: `${file}:7: rita: expected denied with columns_required, found allowed\n3 expectations, 1 differ\n`,
    stderr: "",
  });
  writeFileSync(file, `${expectations}[[expect]]\nuser = "rita"\nquery = "{}"\nallowed = true\n`);
  const json = await gatehouse.run("access test", undefined, file, "--json");
  t.equal(json.code, 1);
  t.match(JSON.parse(json.stdout), [
    {
      line: 18,
      expected: { user: "rita", allowed: true },
      found: { allowed: false, code: "no_operation" },
    },
  ]);
});

t.test("a file of expectations that is none is refused with its line", async (t) => {
  const gatehouse = install(t, policy);
  const file = path.join(gatehouse.home, "policy.test.toml");
  const bad: [text: string, stderr: RegExp][] = [
    ["[[expect]]\nuser = 1\n", /policy\.test\.toml:1: \[\[expect\]\]: `user`/],
    [
      `${expectations}[[expect]]\nusr = "x"\n`,
      /policy\.test\.toml:18: \[\[expect\]\]: unknown key `usr`; allowed: user, .* \(did you mean user\?\)/,
    ],
    ["[[expect]\n", /policy\.test\.toml:1: /],
    ["", /policy\.test\.toml: /],
  ];
  for (const [text, stderr] of bad) {
    writeFileSync(file, text);
    t.match(await gatehouse.run("access test", undefined, file), { code: 1, stdout: "", stderr });
  }
});

t.test("access diff says who gains and loses what", async (t) => {
  const gatehouse = install(t, policy);
  const file = path.join(gatehouse.home, "new.toml");
  const changed = policy
    .replace('role = "ReadWrite"\ncolumns', 'role = "ReadOnly"\ncolumns')
    .replace("max_rows = 100", "max_rows = 50")
    .replace('tenant = "acme"', 'tenant = "globex"')
    .replace('via = "mcp"', 'via = "mcp"\ndatabase = "main"')
    .replace(grant("alice", "*", "ReadOnly"), "");
  writeFileSync(file, changed + user("carol") + grant("carol", "main", "ReadOnly"));
  const files = [gatehouse.accessFile, file];
  t.strictSame(await gatehouse.run("access diff", undefined, ...files), {
    code: 0,
    stdout: [
      "alice loses SELECT on * (ReadOnly to None)",
      "rita on main: max_rows 100 to 50",
      "rita loses INSERT, UPDATE, DELETE on main.tickets (ReadWrite to ReadOnly)",
      "carol gains SELECT on main (None to ReadOnly)",
      "rita: other attributes, which row filters may refer to",
      "boundary removed: mcp",
      "boundary added: mcp database=main",
      "",
    ].join("\n"),
    stderr: "",
  });
  const { stdout } = await gatehouse.run("access diff --json", undefined, ...files.toReversed());
  t.match(JSON.parse(stdout), {
    access: [{}, {}, {}, {}],
    attributesChanged: ["rita"],
    boundariesAdded: ["mcp"],
  });
  const same = [gatehouse.accessFile, gatehouse.accessFile];
  t.match(await gatehouse.run("access diff", undefined, ...same), {
    code: 0,
    stdout: "nobody gains or loses anything\n",
  });
  writeFileSync(
    file,
    policy.replace('role = "ReadOnly"\nmax_rows', 'role = "ReadWrite"\nmax_rows'),
  );
  t.match(await gatehouse.run("access diff", undefined, ...files), {
    stdout: "rita gains INSERT, UPDATE, DELETE on main (ReadOnly to ReadWrite)\n",
  });
  t.match(await gatehouse.run("access diff nothing nowhere"), {
    code: 1,
    stderr: "gatehouse: nothing does not exist\n",
  });
});
