import t from "tap";
import { entriesIn } from "../../src/core/access/entries.ts";
import {
  entryInWords,
  readAttribute,
  readCondition,
  timeInWords,
} from "../../src/core/access/entry-view.ts";
import { groupHolder, userHolder } from "../../src/core/access/grant.ts";
import { checkRecords, parseAccessFile } from "../../src/core/access/parse.ts";
import { ownGrants } from "../../src/core/access/snapshot.ts";
import { notesOnEntry, type Reader } from "../../src/features/console/entry-notes.ts";
import { grant, groupGrant, user } from "./kit.ts";

t.test("an entry is a sentence for every role and every limit", async (t) => {
  const limits = [
    'tables = ["orders", "customer_*"]',
    'columns = ["id", "total", "state"]',
    'writable_columns = ["state"]',
    'row_filter = [{ column = "tenant", cmp = "=", value = "@tenant" }, { column = "id", cmp = "IN", value = [1, 2] }]',
    'require_where = ["id"]',
    "max_rows = 100",
    "max_changes = 1",
    'require_approval = ["DELETE", "UPDATE"]',
    'approvers = ["dave", "group:ops"]',
    "expires = 2126-12-03T18:00:00Z",
  ];
  const many = Array.from({ length: 9 }, (_, at) => `"c${at}"`);
  const cases: [entry: string, sentence: string, planned?: string][] = [
    [
      grant(
        "carol",
        "shop",
        "ReadOnly",
        'tables = ["orders"]\ncolumns = ["a", "b", "c"]\nmax_rows = 100',
      ),
      "carol can read shop.orders, 3 columns (a, b and c), at most 100 rows.",
      "carol will be able to read shop.orders, 3 columns (a, b and c), at most 100 rows.",
    ],
    [
      grant("carol", "shop", "ReadWrite", limits.join("\n")),
      "carol can read and change shop.orders and shop.customer_*, 3 columns (id, total and state), writing only state, only rows where tenant = @tenant and id IN (1, 2), updating and deleting only by id, at most 100 rows, at most 1 change, DELETE and UPDATE only after approval by dave or group ops, until 3 Dec 2126, 18:00 UTC.",
    ],
    [
      grant("carol", "shop", "ReadOnly", `columns = [${many}]`),
      "carol can read every table of shop, 9 columns (c0, c1, c2, c3, c4, c5 and 3 more).",
    ],
    [
      grant("carol", "a.b", "ReadWrite", 'writable_columns = []\ntables = ["t"]'),
      "carol can read and change 'a.b'.t, writing no column.",
    ],
    [
      groupGrant("staff:eng", "*", "ReadOnly", 'tables = ["log_*"]'),
      "Members of the group staff:eng can read log_* in every database.",
      "Members of the group staff:eng will be able to read log_* in every database.",
    ],
    [
      grant("dora", "shop", "DbAdmin"),
      "dora can read, change, create and drop every table of shop, and grant roles up to ReadWrite.",
    ],
    [
      grant("dora", "shop", "DbAdmin", "expires = 2126-01-01T00:00:05Z"),
      "dora can read, change, create and drop every table of shop, until 1 Jan 2126, 00:00:05 UTC.",
    ],
    [
      grant("dora", "shop", "ReadOnly", "expires = 2026-01-01T00:00:00Z"),
      "dora could read every table of shop, until 1 Jan 2026, 00:00 UTC.",
    ],
    [
      grant("oona", "shop", "Owner"),
      "oona can read, change, create and drop every table of shop and the database itself, and grant every role.",
    ],
    [
      grant("root", "*", "Owner"),
      "root can read, change, create and drop every table and every database, and manage all users, groups and grants.",
    ],
    [
      grant("root", "*", "Owner", 'require_approval = ["DROP"]'),
      "root can read, change, create and drop every table and every database, DROP only after approval.",
    ],
    [
      grant("eve", "shop", "None"),
      "eve has no access to shop.",
      "eve will have no access to shop.",
    ],
    [groupGrant("eng", "*", "None"), "Members of the group eng have no access to any database."],
    [
      grant("eve", "shop", "None", 'tables = ["pay"]'),
      "eve has no access to shop.pay.",
      "eve will have no access to shop.pay.",
    ],
  ];
  for (const [text, sentence, planned] of cases) {
    const [entry] = checkRecords(Buffer.from(text), "access").grants;
    if (entry === undefined) throw new Error(text);
    t.equal(entryInWords(entry), sentence);
    if (planned !== undefined) t.equal(entryInWords(entry, true), planned);
  }
  t.equal(timeInWords(Date.UTC(2026, 11, 31, 9, 5)), "31 Dec 2026, 09:05 UTC");
});

const group = (name: string, ...members: string[]) =>
  `[[groups]]\nname = "${name}"\nmembers = ${JSON.stringify(members)}\n\n`;
const soon = "expires = 2126-12-03T18:00:00Z";
const everything: Reader = { isVisible: () => true, isManageable: () => true };

/** The notes on the first entry of a user, or of a group. */
function notesOn(name: string, text: string, reader: Reader = everything): string {
  const snapshot = parseAccessFile(text, "access.toml");
  const holder = snapshot.groups.has(name) ? groupHolder(name) : userHolder(name);
  const [entry] = entriesIn(ownGrants(snapshot, holder));
  if (entry === undefined) throw new Error(text);
  return notesOnEntry(snapshot, entry, Date.now(), reader).join(" ");
}

t.test("a note on a temporary entry says what decides after it", async (t) => {
  const carol = [user("carol", ""), grant("carol", "shop", "None", soon)].join("");
  const staff = group("staff", "carol") + groupGrant("staff", "shop", "ReadWrite");
  const denies = "After that, it denies everything there until it is removed or replaced";
  t.equal(notesOn("carol", carol), `${denies}.`);
  t.match(
    notesOn("carol", carol + staff),
    "After that, the entry for shop (group staff) decides: ReadWrite.",
  );
  t.equal(
    notesOn("carol", carol + grant("carol", "shop", "ReadOnly")),
    "After that, the other entry decides: ReadOnly.",
  );
  t.equal(
    notesOn("carol", carol + grant("carol", "*", "ReadOnly")),
    `${denies}.`,
    "an entry for every database does not replace an expired one",
  );
  const limited = group("temps", "carol") + groupGrant("temps", "shop", "ReadOnly", "max_rows = 5");
  t.match(
    notesOn("carol", carol + staff + limited),
    "After that, carol has no access there: the entries of the groups staff and temps differ.",
  );
  t.equal(
    notesOn(
      "corp:ann",
      grant("corp:ann", "shop", "ReadOnly", soon) + groupGrant("corp:x", "a", "None"),
    ),
    `${denies}, unless a group of the token has an entry.`,
  );
  t.match(
    notesOn("ops", carol + group("ops", "carol") + groupGrant("ops", "shop", "ReadOnly", soon)),
    "After that, it denies everything there to members without another entry until it is removed or replaced.",
  );
});

t.test("a note names the members whom differing entries of groups lock out", async (t) => {
  const users = ["carol", "dan", "eve"].map((name) => user(name, "")).join("");
  const text = [
    users,
    group("aa", "carol", "dan"),
    group("bb", "carol", "dan", "eve"),
    groupGrant("aa", "shop", "ReadOnly"),
    groupGrant("bb", "shop", "ReadOnly", "max_rows = 5"),
    grant("dan", "shop", "ReadOnly"),
  ].join("");
  t.equal(
    notesOn("bb", text),
    "The group has 3 members: carol, dan and eve. carol has no access there: the entries of the groups aa and bb differ. For dan, another entry decides there.",
  );
});

t.test("a note names nobody whom its reader may not manage", async (t) => {
  const text = [
    user("carol", ""),
    grant("carol", "shop", "ReadWrite"),
    group("payroll", "carol"),
    groupGrant("payroll", "payroll", "ReadOnly"),
    '[[boundaries]]\nvia = "mcp"\ngroup = "payroll"\nrequire_approval = ["DELETE"]\napprovers = ["boss"]\n\n',
  ].join("");
  t.equal(
    notesOn("carol", text),
    "Over MCP for group payroll: DELETE only after approval by boss (boundary mcp group=payroll).",
  );
  const carol = userHolder("carol");
  const reader: Reader = {
    isVisible: (database) => database === "shop",
    isManageable: (holder) => holder === carol,
  };
  t.equal(notesOn("carol", text, reader), "Over MCP: DELETE only after approval (boundary mcp).");
});

t.test("conditions and attributes are read in linear time", async (t) => {
  const spaces = "\t".repeat(100_000);
  const startedAt = performance.now();
  for (const name of ["", "a", `${spaces}a`, `a${spaces}b`]) {
    t.equal(readCondition(`${name}${spaces}`), undefined);
    t.equal(readAttribute(`${name}${spaces}`), undefined);
  }
  const written = `${spaces}tenant${spaces}=${spaces}acme${spaces}`;
  t.same(readCondition(written), { column: "tenant", cmp: "=", value: "acme" });
  t.same(readAttribute(written), ["tenant", "acme"]);
  t.ok(performance.now() - startedAt < 2000);
});
