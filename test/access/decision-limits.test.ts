/** Rules on numbers of rows, approvals and whole databases, by examples. */
import t from "tap";
import type { Boundary, Grant } from "../../src/access/grant.ts";
import { decideWhole, seeTable } from "../../src/access/policy.ts";
import {
  codeOf,
  decideOn,
  insert,
  place,
  type Rules,
  select,
  snapshotBy,
  subject,
  update,
  where,
} from "./decision-kit.ts";

t.test("rows are limited, in a Batch as a sum, by the entry and the boundary", async (t) => {
  const grants = [{ maxRows: 10, maxChanges: 2 }];
  const boundary: Boundary = { via: "mcp", maxRows: 5 };
  t.equal(codeOf({ grants }, select()), "limit_required");
  t.equal(codeOf({ grants }, select({ limit: 11 })), "limit_too_high");
  t.equal(codeOf({ grants }, select({ limit: 10 })), "allowed");
  const over = decideOn({ grants, boundaries: [boundary] }, select({ limit: 6 }), { via: "mcp" });
  t.strictSame([over.reason, over.decisions[0]?.boundary], ["limit_too_high", "mcp"]);
  t.equal(codeOf({ grants, boundaries: [boundary] }, select({ limit: 6 })), "allowed");
  const two = decideOn({ grants }, { Batch: [select({ limit: 6 }), select({ limit: 5 })] });
  t.strictSame([two.reason, two.decisions.length], ["limit_too_high", 2]);
  const count = {
    Select: { database: "main", from: "tickets", aggregate: [{ fn: "count", as: "n" }] },
  };
  t.equal(codeOf({ grants }, count), "allowed");
  t.equal(codeOf({ grants }, insert({ id: 1 }, { id: 2 }, { id: 3 })), "too_many_changes");
  t.equal(
    codeOf({ grants }, { Batch: [insert({ id: 1 }), insert({ id: 2 }, { id: 3 })] }),
    "too_many_changes",
  );
  const changes = [
    insert({ id: 1 }),
    update({ set: { id: 1 }, returning: ["id"] }),
    select({ limit: 4 }),
  ];
  t.strictSame(decideOn({ grants }, { Batch: changes }).limits, [
    { elements: [0, 1], changes: 2 },
    { elements: [1], rows: 6 },
  ]);
});

t.test("before another database, changes are pinned to few enough rows", async (t) => {
  const isEngine = false;
  const counted = { grants: [{ maxChanges: 3 }] };
  const pinned = { grants: [{ maxChanges: 3, requireWhere: ["a", "b"] }] };
  const both = (a: unknown, b: unknown) => ({
    where: {
      and: [
        { column: "a", cmp: "IN", value: a },
        { column: "b", cmp: "IN", value: b },
      ],
    },
  });
  const change = { set: { id: 1 } };
  t.equal(
    codeOf(counted, update({ ...change, ...where("id", "=", 1) }), { isEngine }),
    "where_required",
  );
  t.equal(
    codeOf(pinned, update({ ...change, ...both([1], ["x", "y", "z"]) }), { isEngine }),
    "allowed",
  );
  t.equal(
    codeOf(pinned, update({ ...change, ...both([1, 2], ["x", "y"]) }), { isEngine }),
    "where_required",
  );
  for (const isEngine of [true, false]) {
    for (const values of [[1, null], [1.5], [true], [[1]]]) {
      t.equal(
        codeOf(pinned, update({ ...change, ...both(values, ["x"]) }), { isEngine }),
        "where_required",
      );
    }
    const loose = { where: { or: [both([1], ["x"]).where, both([2], ["x"]).where] } };
    t.equal(codeOf(pinned, update({ ...change, ...loose }), { isEngine }), "where_required");
  }
  const twice = { and: [...both([1, 2, 3, 4], ["x"]).where.and, where("a", "=", 1).where] };
  const narrower = update({ ...change, where: twice });
  t.equal(codeOf(pinned, narrower, { isEngine }), "allowed", "of two pins the narrower counts");
  t.equal(
    codeOf({ grants: [{ maxRows: 3 }] }, { Preview: update(change) }, { isEngine }),
    "not_narrowable",
  );
});

t.test("an approval is asked for by entry and boundary, of the whole query", async (t) => {
  const grants: Partial<Grant>[] = [
    {},
    { tables: ["tickets"], requireApproval: ["DELETE"], approvers: ["dave"] },
  ];
  const boundaries: Boundary[] = [{ via: "mcp", requireApproval: ["INSERT", "DELETE"] }];
  const body = { Batch: [select(), { Delete: { ...place, ...where("id", "=", 1) } }] };
  const asked = decideOn({ grants, boundaries }, body, { via: "mcp" });
  t.strictSame([asked.allowed, asked.reason], [false, "approval_required"]);
  const common = { database: "main", permissions: ["DELETE"] };
  t.strictSame(asked.approvals, [
    { entry: "main.tickets", ...common, approvers: ["dave"] },
    { boundary: "mcp", ...common },
  ]);
  t.ok(decideOn({ grants, boundaries }, body, { via: "mcp", isApproved: true }).allowed);
  t.ok(decideOn({ grants, boundaries }, select(), { via: "mcp" }).allowed);
});

t.test("what reaches a whole database is for callers who may use all of it", async (t) => {
  const origin = { via: "mcp", client: "agent" } as const;
  const ask = (rules: Rules) =>
    decideWhole(snapshotBy(rules), subject, "SELECT", "main", origin).reason;
  t.equal(ask({}), "allowed");
  t.equal(ask({ grants: [{}, { tables: ["a"] }] }), "not_narrowable");
  t.equal(ask({ grants: [{ database: "*" }, { tables: ["a"] }] }), "not_narrowable");
  t.equal(
    ask({ grants: [{}, { database: "*", tables: ["a"] }] }),
    "allowed",
    "which decides nothing here",
  );
  t.equal(ask({ grants: [{ maxRows: 1 }] }), "not_narrowable");
  t.equal(ask({ grants: [{ requireApproval: ["SELECT"] }] }), "not_narrowable");
  t.equal(ask({ grants: [{ requireApproval: ["DELETE"] }] }), "allowed");
  t.equal(ask({ boundaries: [{ via: "mcp", role: "None" }] }), "role_insufficient");
  t.equal(ask({ boundaries: [{ via: "mcp", client: "other", role: "None" }] }), "allowed");
  t.equal(ask({ boundaries: [{ via: "mcp", client: "agent", maxRows: 1 }] }), "not_narrowable");
});

t.test("of a table the columns of the entry are seen", async (t) => {
  const grants = [
    {},
    { tables: ["tickets"], columns: ["id"] },
    { tables: ["salaries"], role: "None" as const },
  ];
  const see = (table: string) =>
    seeTable(snapshotBy({ grants }), subject, "main", table, { via: "query" });
  const seen = see("tickets");
  t.ok(typeof seen === "object" && seen.sees("id") && !seen.sees("secret"));
  t.equal(see("salaries"), "role_insufficient");
  t.equal(see("Salaries"), "name_case_mismatch");
});
