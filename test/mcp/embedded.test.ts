import t from "tap";
import { connectEarlier, connectStateless } from "./clients.ts";
import { openEmbedded, principalOf } from "./kit.ts";

const owner = { alice: { "*": "Owner" } } as const;
const users = {
  database: "main",
  table: "users",
  columns: [
    { name: "id", type: "bigint", primary_key: true },
    { name: "name", type: "varchar(20)", nullable: false },
  ],
};

for (const [client, connect] of [
  ["a client of 2026-07-28", connectStateless],
  ["a client that begins by a handshake", connectEarlier],
] as const) {
  t.test(`${client} works with every tool`, async (t) => {
    const { endpoint, ask } = await openEmbedded(t, { grants: owner });
    const mcp = await connect(t, endpoint.url);
    const toolNames = await mcp.toolNames();
    t.same(toolNames.toSorted(), [
      "batch",
      "count",
      "create_table",
      "delete",
      "describe_table",
      "drop_table",
      "insert",
      "list_databases",
      "list_tables",
      "preview",
      "select",
      "update",
      "upsert",
      "whoami",
    ]);

    t.match(await mcp.call("create_table", users), { isError: false });
    const values = [
      { id: 1, name: "Ann" },
      { id: 2, name: "Ben" },
      { id: 3, name: "Cay" },
    ];
    const ofUsers = { database: "main", table: "users" };
    t.match(await mcp.call("insert", { ...ofUsers, values }), { isError: false });
    const where = { column: "id", cmp: "=", value: 2 };
    t.match(await mcp.call("update", { ...ofUsers, set: { name: "Bob" }, where }), {
      isError: false,
    });
    const first = { column: "id", cmp: "=", value: 1 };
    t.match(await mcp.call("delete", { ...ofUsers, where: first }), { isError: false });
    const select = {
      database: "main",
      from: "users",
      columns: ["*"],
      where: { or: [where, { not: first }] },
      order_by: { column: "id" },
    };
    t.match(await mcp.call("select", select), {
      isError: false,
      structured: {
        rows: [
          { id: 2, name: "Bob" },
          { id: 3, name: "Cay" },
        ],
        truncated: false,
      },
    });

    t.same((await mcp.call("list_databases", {})).structured, { databases: ["main"] });
    t.same((await mcp.call("list_tables", { database: "main" })).structured, {
      tables: ["users"],
    });
    const columns = [
      { name: "id", type: "bigint", primary_key: true, nullable: false },
      { name: "name", type: "varchar(20)", primary_key: false, nullable: false },
    ];
    const description = { columns, keys: [["id"]], rows: 2 };
    t.same((await mcp.call("describe_table", ofUsers)).structured, description);
    t.same(await mcp.resourceUris(), ["gatehouse:///main/users"]);
    t.same(JSON.parse(await mcp.read("gatehouse:///main/users")), {
      ...ofUsers,
      ...description,
    });

    t.match(await mcp.call("drop_table", ofUsers), { isError: false });
    const gone = await ask({ Select: { database: "main", from: "users", columns: ["*"] } });
    t.equal(gone.status, 404);
  });
}

t.test("rows past the cap are cut, and said to be", async (t) => {
  const { endpoint, ask } = await openEmbedded(t, { grants: owner, rowLimit: 2 });
  await ask({ CreateTable: users });
  const values = [1, 2, 3].map((id) => ({ id, name: `n${id}` }));
  await ask({ Insert: { database: "main", table: "users", values } });
  const mcp = await connectStateless(t, endpoint.url);
  const select = { database: "main", from: "users", columns: ["id"], order_by: { column: "id" } };
  const firstTwo = [{ id: 1 }, { id: 2 }];
  for (const limit of [{}, { limit: 2 }, { limit: 3 }, { limit: 100_000 }]) {
    t.same((await mcp.call("select", { ...select, ...limit })).structured, {
      rows: firstTwo,
      truncated: true,
      next_after: [2],
      next_offset: 2,
    });
  }
  const rest = await mcp.call("select", { ...select, offset: 2 });
  t.same(rest.structured, { rows: [{ id: 3 }], truncated: false });
  const some = await mcp.call("select", { ...select, limit: 1, offset: 1 });
  t.same(some.structured, {
    rows: [{ id: 2 }],
    truncated: true,
    next_after: [2],
    next_offset: 2,
  });
  const none = await mcp.call("select", { ...select, limit: 0 });
  t.same(none.structured, { rows: [], truncated: true, next_offset: 0 });
});

t.test("a denied call says which rule denied it", async (t) => {
  const { endpoint, ask } = await openEmbedded(t, {
    grants: { alice: { main: "ReadOnly", other: "ReadWrite" } },
  });
  await ask({ CreateTable: users });
  const mcp = await connectStateless(t, endpoint.url);
  const values = [{ id: 1, name: "Ann" }];
  t.match(await mcp.call("insert", { database: "main", table: "users", values }), {
    isError: true,
    text: /^Denied: .*\(role_insufficient\)$/,
  });
  t.match(await mcp.call("drop_table", { database: "elsewhere", table: "users" }), {
    isError: true,
    text: /^Denied: .*\(no_grant\)$/,
  });
  for (const database of ["elsewhere", "nowhere"]) {
    t.match(await mcp.call("list_tables", { database }), {
      isError: true,
      text: /^Denied: .*\(no_grant\)$/,
    });
  }
});

t.test("a caller is listed only the tools that its roles can use", async (t) => {
  const grants = {
    alice: { main: "ReadOnly" },
    bob: { main: "ReadOnly", other: "ReadWrite" },
    carol: { main: "DbAdmin" },
    dave: {},
  } as const;
  const { endpoint } = await openEmbedded(t, { grants });
  const reading = ["whoami", "list_databases", "list_tables", "describe_table", "select"];
  const writing = [...reading, "insert", "update", "delete", "upsert", "preview"];
  const expected = {
    alice: [...reading, "count", "batch"],
    bob: [...writing, "count", "batch"],
    carol: [...writing, "create_table", "drop_table", "count", "batch"],
    dave: ["whoami"],
  };
  for (const [username, names] of Object.entries(expected)) {
    endpoint.principal = principalOf(username);
    const mcp = await connectStateless(t, endpoint.url);
    t.same(await mcp.toolNames(), names, username);
  }
});

t.test("only databases that may be read are told of", async (t) => {
  const { endpoint, ask } = await openEmbedded(t, { grants: { alice: { main: "ReadOnly" } } });
  await ask({ CreateDatabase: { database: "hidden" } });
  await ask({ CreateTable: { ...users, database: "hidden" } });
  const mcp = await connectStateless(t, endpoint.url);
  t.same((await mcp.call("list_databases", {})).structured, { databases: ["main"] });
  t.same(await mcp.resourceUris(), []);
  await t.rejects(mcp.read("gatehouse:///hidden/users"), /Insufficient permissions/);
  await t.rejects(mcp.read("gatehouse:///hidden/missing"), /Insufficient permissions/);
  await t.rejects(mcp.read("gatehouse:///main/missing"), /no such database or table/);
});

t.test("without a schema there are neither its tools nor resources", async (t) => {
  const { endpoint } = await openEmbedded(t, { grants: owner, hasSchema: false });
  const mcp = await connectStateless(t, endpoint.url);
  const names = await mcp.toolNames();
  t.notOk(names.some((name) => name.startsWith("list_") || name.startsWith("describe_")));
  t.ok(names.includes("select"));
});

t.test(
  "arguments outside the schema or the grammar are errors that a model can mend",
  async (t) => {
    const { endpoint, ask } = await openEmbedded(t, { grants: owner });
    await ask({ CreateTable: users });
    const mcp = await connectStateless(t, endpoint.url);
    const select = { database: "main", from: "users", columns: ["*"] };
    for (const wrong of [
      { database: "../main" },
      { limit: -1 },
      { where: { column: "id" } },
      { unknown: 1 },
      { columns: ["users.id", "orders.id"] },
    ]) {
      t.match(await mcp.call("select", { ...select, ...wrong }), { isError: true }, wrong);
    }
    t.match(await mcp.call("delete", { database: "main", table: "users" }), { isError: true });
  },
);
