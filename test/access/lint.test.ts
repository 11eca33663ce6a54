import t from "tap";
import { lintAccess } from "../../src/core/access/lint.ts";
import { parseAccessFile } from "../../src/core/access/parse.ts";
import { runAtOnce } from "../../src/core/base/cooperative-scheduling.ts";
import { user } from "./kit.ts";

const now = Date.UTC(2026, 5, 1);
const people = `${user("root")}${user("rita", 'attributes = { tenant = "acme", regions = ["eu"] }')}`;

function lint(tables: string, hasPreset = false): string[] {
  const snapshot = parseAccessFile(people + tables, "access.toml");
  return runAtOnce(lintAccess(snapshot, { now, hasPreset }));
}

const entry = (more: string, place = 'database = "main"') =>
  `[[acl]]\nusername = "rita"\n${place}\n${more}\n`;
const write = 'role = "ReadWrite"\n';
const filter = (condition: string) =>
  entry(`${write}row_filter = [{ column = "t", ${condition} }]`);

const cases: [tables: string, expected: RegExp][] = [
  [entry(`${write}expires = 2026-05-31T00:00:00Z`), /for main: has expired, and denies/],
  [
    entry(`${write}expires = 2026-05-31T00:00:00Z`) + entry('role = "ReadOnly"'),
    /has expired and has no effect/,
  ],
  [
    `[[groups]]\nname = "crew"\nmembers = ["rita"]\n${entry(`${write}expires = 2026-05-31T00:00:00Z`)}[[acl]]\ngroup = "crew"\ndatabase = "main"\nrole = "ReadOnly"\n`,
    /has expired and has no effect/,
  ],
  [
    entry('role = "ReadOnly"\nmax_changes = 1\nwritable_columns = ["a"]'),
    /`writable_columns`, `max_changes` has no effect/,
  ],
  [
    entry('role = "ReadOnly"\nrequire_approval = ["DELETE"]'),
    /names DELETE, which ReadOnly does not give/,
  ],
  [entry(`${write}columns = ["a"]\nwritable_columns = ["a", "b"]`), /"b" can never be written/],
  [
    entry(`${write}columns = ["a"]\nrequire_where = ["id"]`),
    /requires "id".*every Update and Delete is denied/,
  ],
  [entry(`${write}approvers = ["root"]`), /`approvers` has no effect without/],
  [
    entry(`${write}require_approval = ["DELETE"]\napprovers = ["ghost", "root"]`),
    /names users without a record: ghost/,
  ],
  [
    entry(`${write}require_approval = ["DELETE"]\napprovers = ["rita"]`),
    /users cannot approve their own queries/,
  ],
  [
    entry(`${write}require_approval = ["DELETE"]\napprovers = ["staff:rita"]`) +
      user("staff:rita", 'same_as = "rita"'),
    /names only the user, also by other names \(`same_as`\), and users cannot approve/,
  ],
  [user("staff:x"), /^the user staff:x: `password_hash` has no effect/],
  [user("ann", 'same_as = "gone"'), /the user ann: `same_as` names a user without a record: gone/],
  [filter('cmp = "=", value = "@team"'), /refers to @team, which the user's record lacks/],
  [filter('cmp = "=", value = "@regions"'), /@regions, but = needs a single value/],
  [filter('cmp = "IN", value = "@tenant"'), /@tenant, but IN needs a list/],
  [
    entry(`${write}tables = ["Tickets"]`) + entry(`${write}tables = ["ticket*"]`),
    /for main\.Tickets: Tickets and ticket\* differ only by case/,
  ],
  [
    '[[boundaries]]\nvia = "mcp"\nusername = "gone"\nrole = "ReadOnly"\n',
    /boundary mcp username=gone: is for gone, who has no record/,
  ],
];

t.test("each doubtful entry or boundary is described in one sentence", async (t) => {
  for (const [tables, expected] of cases) {
    const found = lint(tables);
    t.equal(found.length, 1, found.join("; "));
    t.match(found[0], expected);
  }
});

t.test("limits that a preset cannot keep give a warning", async (t) => {
  const limited = entry(`${write}max_rows = 5\nrequire_approval = ["DELETE"]`);
  t.strictSame(lint(limited, true), [
    "the entry of rita for main: upstream.preset cannot keep its limits, so it allows nothing: at most 5 rows",
    "the entry of rita for main: upstream.preset asks for no approvals, so it denies DELETE",
  ]);
  t.strictSame(lint(limited), []);
  const bound = '[[boundaries]]\nvia = "query"\nmax_rows = 5\n';
  t.match(lint(bound, true), [/^the boundary query: upstream\.preset cannot keep/]);
  t.strictSame(lint(bound.replace('"query"', '"mcp"'), true), []);
  const plain =
    entry('role = "None"\ntables = ["a"]') + entry(`${write}expires = 2026-07-01T00:00:00Z`);
  t.strictSame(lint(plain, true), []);
});

t.test("entries without mistakes give no warning", async (t) => {
  const good = [
    filter('cmp = "=", value = "@tenant"'),
    entry(
      `${write}columns = ["a"]\nwritable_columns = ["a"]\nrequire_where = ["a"]`,
      'database = "x"',
    ),
    entry('role = "Owner"\nexpires = 2026-06-02T00:00:00Z'),
    entry('role = "None"\ntables = ["salaries", "log_*"]'),
    entry(
      `${write}require_approval = ["DELETE"]\napprovers = ["root", "idp:ann"]`,
      'database = "y"',
    ),
    '[[boundaries]]\nvia = "query"\nclient = "x"\nrole = "ReadOnly"\n',
    '[[boundaries]]\nvia = "mcp"\nclient = "x"\nusername = "rita"\nrole = "ReadOnly"\n',
  ];
  t.strictSame(lint(good.join("")), []);
  t.strictSame(lint(filter('cmp = "IN", value = "@regions"')), []);
  t.strictSame(lint(filter('cmp = "=", value = "@username"')), []);
});

const group = (name: string, ...members: string[]) =>
  `[[groups]]\nname = "${name}"\nmembers = ${JSON.stringify(members)}\n`;
const ofGroup = (name: string, ...approvers: string[]) =>
  `[[acl]]\ngroup = "${name}"\ndatabase = "main"\n${write}require_approval = ["DELETE"]\napprovers = ${JSON.stringify(approvers)}\n`;

t.test("members of a group may approve queries of each other, but not alone", async (t) => {
  const crew = group("crew", "rita", "root");
  const alias = user("staff:rita", 'same_as = "rita"');
  const approvedByCrew = entry(
    `${write}require_approval = ["DELETE"]\napprovers = ["group:alone"]`,
    'database = "x"',
  );
  const isRefused = /`approvers` names only the user/;
  t.strictSame(lint(crew + ofGroup("crew", "group:crew")), []);
  t.strictSame(lint(crew + ofGroup("crew", "rita")), []);
  t.strictSame(lint(ofGroup("staff:crew", "group:staff:crew")), []);
  t.strictSame(lint(group("idle") + ofGroup("idle", "rita")), ["the group idle: has no members"]);
  const pair = group("pair", "rita", "staff:rita") + alias;
  t.match(lint(pair + ofGroup("pair", "group:pair")), [isRefused]);
  t.match(lint(group("alone", "rita") + approvedByCrew), [isRefused]);
});
