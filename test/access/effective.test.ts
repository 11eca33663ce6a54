import t from "tap";
import {
  type EffectiveAccess,
  effectiveAccess,
  operationsInWords,
  viewEffective,
} from "../../src/core/access/effective.ts";
import type { Subject } from "../../src/core/access/grant.ts";
import { parseAccessFile } from "../../src/core/access/parse.ts";
import { decideQuery } from "../../src/core/access/policy.ts";
import { caseCount } from "../kit/nightly.ts";
import { parsed } from "./decision-queries.ts";
import { type Choose, now, seeded, snapshotOf, subjectOf, worldOf } from "./decision-worlds.ts";
import { grant, groupGrant, user } from "./kit.ts";

const CASES = caseCount(700, 30_000);

interface Asked {
  readonly database: string;
  readonly table: string;
  readonly via: "query" | "mcp";
  readonly client?: string | undefined;
}

/** The row that a reader of the list would take: the most specific place, and the way in. */
function rowFor(rows: readonly EffectiveAccess[], asked: Asked): EffectiveAccess | undefined {
  const { via, client } = asked;
  const ways = [
    (row: EffectiveAccess) => row.via === via && row.client === client,
    (row: EffectiveAccess) => row.via === via && row.client === undefined,
    (row: EffectiveAccess) => row.via === undefined,
  ];
  const length = (row: EffectiveAccess) => row.table?.length ?? 0;
  const places = [asked.database, "*"].flatMap((database) => {
    const here = rows.filter((row) => row.database === database);
    const patterns = here
      .filter(({ table = "" }) => table.endsWith("*") && asked.table.startsWith(table.slice(0, -1)))
      .sort((one, other) => length(other) - length(one));
    const longest = patterns.filter((row) => row.table === patterns[0]?.table);
    return [
      here.filter((row) => row.table === asked.table),
      longest,
      here.filter((row) => row.table === undefined),
    ];
  });
  const place = places.find((found) => found.length > 0) ?? [];
  return ways.flatMap((fits) => place.find(fits) ?? [])[0];
}

function askedBy(choose: Choose): Asked {
  return {
    database: choose(["main", "main", "shop", "other"]),
    table: choose(["tickets", "customer_a", "customer_b", "custom", "orders", "Orders", "items"]),
    via: choose(["query", "mcp"]),
    ...choose([{}, {}, { client: "agent" }, { client: "other" }]),
  };
}

const bodies = {
  SELECT: ({ database, table }: Asked) => ({
    Select: { database, from: table, aggregate: [{ fn: "count", as: "n_" }] },
  }),
  DELETE: ({ database, table }: Asked) => ({ Delete: { database, table, where: null } }),
};

/** Denials that another query avoids say nothing about the right. */
const avoidable = new Set(["where_required", "too_many_changes", "not_narrowable"]);

t.test("the effective rows agree with the decisions on queries", async (t) => {
  const counts = { allowed: 0, waiting: 0, denied: 0 };
  for (let seed = 1; seed <= CASES; seed++) {
    const choose = seeded(seed);
    const world = worldOf(choose);
    const snapshot = snapshotOf(world);
    const subject: Subject = subjectOf(world);
    const rows = effectiveAccess(snapshot, subject, { now, hasPreset: false });
    const asked = askedBy(choose);
    const { via, client } = asked;
    const context = { via, client, now, isEngine: true };
    const row = rowFor(rows, asked);
    for (const permission of ["SELECT", "DELETE"] as const) {
      const query = parsed({ body: bodies[permission](asked), context });
      if (query === undefined) throw new Error("the query is not valid");
      const decided = decideQuery(snapshot, subject, query, context);
      const isListed = row?.operations.includes(permission) === true;
      const isWaiting = row?.requireApproval.includes(permission) === true;
      const where = `seed ${seed} ${permission} ${JSON.stringify(asked)}: ${decided.reason}`;
      const isOwn = row?.table === asked.table && row.database === asked.database;
      if (decided.reason === "name_case_mismatch" && !isOwn) continue;
      if (avoidable.has(decided.reason)) {
        if (!isListed) t.fail(`${where}, but not listed`);
        continue;
      }
      const isAllowed = decided.allowed || decided.reason === "approval_required";
      if (isListed !== isAllowed) t.fail(`${where}, but listed: ${isListed}`);
      if (isListed && isWaiting === decided.allowed) t.fail(`${where}, approval: ${isWaiting}`);
      counts[isWaiting ? "waiting" : isAllowed ? "allowed" : "denied"]++;
    }
  }
  t.ok(
    Object.values(counts).every((count) => count > CASES / 100),
    JSON.stringify(counts),
  );
});

const file = [
  user("ann"),
  user("bob", ""),
  user("eve", `disabled = true`),
  '[[groups]]\nname = "analysts"\nmembers = ["ann", "eve"]\n\n',
  grant("ann", "*", "DbAdmin"),
  grant(
    "ann",
    "main",
    "ReadWrite",
    'tables = ["tickets"]\ncolumns = ["id", "status"]\nmax_rows = 9',
  ),
  grant("ann", "main", "None", 'tables = ["secrets"]'),
  grant("ann", "old", "Owner", "expires = 2020-01-01T00:00:00Z"),
  groupGrant(
    "analysts",
    "main",
    "ReadOnly",
    'row_filter = [{ column = "t", cmp = "=", value = "@t" }]',
  ),
  groupGrant("staff:eng", "main", "ReadWrite", 'require_approval = ["DELETE"]'),
  groupGrant("staff:ops", "main", "ReadOnly", "max_rows = 1"),
  '[[boundaries]]\nvia = "mcp"\ndatabase = "main"\nrole = "ReadOnly"\nmax_rows = 5\n\n',
  '[[boundaries]]\nvia = "mcp"\nclient = "https://a.example"\nusername = "ann"\nrole = "None"\n',
].join("");
const snapshot = parseAccessFile(file, "access_control.toml");
const listed = (username: string, groups: readonly string[] = []) =>
  effectiveAccess(snapshot, { username, groups }, { now: Date.now(), hasPreset: false });
const words = (rows: readonly EffectiveAccess[]) =>
  rows.map((row) => {
    const { database, table = "-", via = "any", client = "", entry } = row;
    return [database, table, via + client, operationsInWords(row), entry].join(" | ");
  });

t.test("each place of entries, groups and boundaries has a row", async (t) => {
  const none = "mcphttps://a.example | none (boundary mcp client=https://a.example username=ann)";
  const all = "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP";
  t.strictSame(words(listed("ann")), [
    `* | - | any | ${all}, GRANT | *`,
    `* | - | ${none} | *`,
    "main | tickets | query | SELECT, INSERT, UPDATE, DELETE | main.tickets",
    "main | tickets | mcp | SELECT | main.tickets",
    `main | tickets | ${none} | main.tickets`,
    "main | secrets | any | none (role_insufficient) | main.secrets",
    "main | - | any | none (attribute_missing) | main (group analysts)",
    "old | - | any | none (grant_expired) | old",
  ]);
  const [, , tickets, overMcp] = listed("ann").map((row) =>
    JSON.parse(JSON.stringify(viewEffective(row))),
  );
  t.strictSame(tickets, {
    database: "main",
    table: "tickets",
    operations: ["SELECT", "INSERT", "UPDATE", "DELETE"],
    columns: ["id", "status"],
    max_rows: 9,
    via: "query",
    entry: "main.tickets",
  });
  t.match(overMcp, { via: "mcp", operations: ["SELECT"], max_rows: 5 });
});

t.test("groups of a token count, and rights that need approval are listed", async (t) => {
  const [query, mcp] = listed("staff:bo", ["staff:eng"]).map((row) =>
    JSON.parse(JSON.stringify(viewEffective(row))),
  );
  t.strictSame(query, {
    database: "main",
    operations: ["SELECT", "INSERT", "UPDATE", "DELETE"],
    require_approval: ["DELETE"],
    via: "query",
    entry: "main (group staff:eng)",
  });
  t.match(mcp, { operations: ["SELECT"], via: "mcp" });
  t.notOk("require_approval" in mcp);
  t.match(words(listed("staff:bo", ["staff:eng", "staff:ops"])), [/none \(group_conflict\)/]);
  t.strictSame(listed("staff:bo"), []);
});

t.test("a disabled or unknown user may do nothing, and the row says why", async (t) => {
  t.strictSame(words(listed("eve")), [
    "main | - | any | none (user_disabled) | main (group analysts)",
  ]);
  t.strictSame(listed("bob"), []);
});
