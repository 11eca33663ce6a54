import t, { type Test } from "tap";
import type { TestGateway } from "../kit/gateway.ts";
import { type AnyClient, connectEarlier, connectStateless } from "../mcp/clients.ts";
import { columns, database, open, roles } from "./mcp-tables.ts";
import { tokenOf } from "./staff.ts";

/** For tests that change nothing in it. */
const kept = await open(t);

/** For tests that write rows and make tables. */
const changing = await open(t);

/** Gives every call in `changing` names and ids of its own. */
let number = 0;

/** An operation, as a tool and as the key of a query; each number gives others of its kind. */
interface Operation {
  readonly tool: string;
  readonly key: string;
  readonly of: (number: number) => Record<string, unknown>;
}

const operations: readonly Operation[] = [
  { tool: "select", key: "Select", of: () => ({ database, from: "t", columns: ["*"] }) },
  { tool: "insert", key: "Insert", of: (id) => ({ database, table: "t", values: [{ id }] }) },
  {
    tool: "update",
    key: "Update",
    of: (n) => ({ database, table: "t", set: { note: `${n}` }, where: null }),
  },
  {
    tool: "delete",
    key: "Delete",
    of: (n) => ({ database, table: "t", where: { column: "id", cmp: "=", value: n - 1 } }),
  },
  {
    tool: "create_table",
    key: "CreateTable",
    of: (n) => ({ database, table: `made_${n}`, columns }),
  },
  {
    tool: "upsert",
    key: "Upsert",
    of: (id) => ({ database, table: "t", values: [{ id }], on_conflict: ["id"], update: [] }),
  },
  {
    tool: "preview",
    key: "Preview",
    of: () => ({ Delete: { database, table: "t", where: null } }),
  },
  { tool: "drop_table", key: "DropTable", of: (n) => ({ database, table: `spare_${n}` }) },
];

const clients = [
  ["a client of 2026-07-28", connectStateless],
  ["a client that begins by a handshake", connectEarlier],
] as const;

/** What the tool and the query say to one user, who is let in or denied for the same reason. */
async function compare(
  t: Test,
  { gateway, mcp, token }: { gateway: TestGateway; mcp: AnyClient; token: string },
  { tool, key, of }: Operation,
  number: number,
): Promise<void> {
  const query = await gateway.query({ [key]: of(number) }, token);
  const call = await mcp.call(tool, of(number + 1));
  t.equal(call.isError, query.status !== 200, `${key}: ${query.status}`);
  if (query.status === 200) return;
  t.ok(call.text.startsWith(`Denied: ${query.body.message}; whoami tells `), call.text);
  t.ok(call.text.endsWith(` (${query.body.code})`), call.text);
}

for (const [client, connect] of clients) {
  t.test(`${client} may do by tools what its role may do by queries`, async (t) => {
    const { gateway, root } = changing;
    for (const name of [...Object.keys(roles), "stranger", "root"]) {
      const token = await tokenOf(gateway, name);
      const mcp = await connect(t, `${gateway.url}/mcp`, token);
      await t.test(name, async (t) => {
        for (const operation of operations) {
          number += 2;
          for (const spare of [number, number + 1]) {
            const table = `spare_${spare}`;
            await gateway.query({ CreateTable: { database, table, columns } }, root);
          }
          await compare(t, { gateway, mcp, token }, operation, number);
        }
      });
    }
  });

  t.test(`${client} is listed what its role can use`, async (t) => {
    const { gateway } = kept;
    const reading = [
      ...["describe_table", "list_databases", "list_tables", "select"],
      ...["batch", "count", "whoami"],
    ];
    const writing = [...reading, "delete", "insert", "preview", "update", "upsert"];
    const everything = [...writing, "create_table", "drop_table"];
    const expected = {
      ...{ owner: everything, dbadmin: everything, root: everything },
      ...{ writer: writing, reader: reading, stranger: reading },
    };
    for (const [name, tools] of Object.entries(expected)) {
      const mcp = await connect(t, `${gateway.url}/mcp`, await tokenOf(gateway, name));
      t.strictSame((await mcp.toolNames()).toSorted(), tools.toSorted(), name);
    }
  });

  t.test(`${client} learns of what its role may read, and of nothing else`, async (t) => {
    const { gateway } = kept;
    const reader = await connect(t, `${gateway.url}/mcp`, await tokenOf(gateway, "reader"));
    t.strictSame((await reader.call("list_databases", {})).structured, { databases: ["main"] });
    t.strictSame((await reader.call("list_tables", { database })).structured, { tables: ["t"] });
    t.strictSame(await reader.resourceUris(), ["gatehouse:///main/t"]);
    t.match(JSON.parse(await reader.read("gatehouse:///main/t")), {
      columns: [{ name: "id" }, {}],
    });
    const stranger = await connect(t, `${gateway.url}/mcp`, await tokenOf(gateway, "stranger"));
    t.strictSame((await stranger.call("list_databases", {})).structured, { databases: [] });
    const denied =
      "Denied: Insufficient permissions for this operation; whoami tells which databases you may use (no_grant)";
    t.equal((await stranger.call("list_tables", { database })).text, denied);
    t.equal((await stranger.call("list_tables", { database: "missing" })).text, denied);
    t.strictSame(await stranger.resourceUris(), []);
    await t.rejects(stranger.read("gatehouse:///main/t"), /Insufficient permissions/);
  });
}
