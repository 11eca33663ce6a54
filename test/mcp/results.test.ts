import t from "tap";
import { ask } from "../kit/client.ts";
import { connectEarlier, connectStateless } from "./clients.ts";
import { openAnswering, openEmbedded } from "./kit.ts";
import { handshakeCall, statelessCall } from "./messages.ts";

const owner = { alice: { "*": "Owner" } } as const;
const columns = [
  { name: "id", type: "bigint", primary_key: true },
  { name: "name", type: "text" },
];
const order_by = { column: "id" };
const select = { database: "main", from: "users", columns: ["*"], order_by };
const resultBytes = 64 * 1024;

/** An embedded server over a table of 300 rows of about half a kilobyte each. */
async function openFilled(t: Parameters<typeof openEmbedded>[0]) {
  const setting = await openEmbedded(t, { grants: owner, rowLimit: 1000, resultBytes });
  await setting.ask({ CreateTable: { database: "main", table: "users", columns } });
  const values = Array.from({ length: 300 }, (_, id) => ({ id, name: `"${"n".repeat(500)}"` }));
  await setting.ask({ Insert: { database: "main", table: "users", values } });
  return setting;
}

for (const [client, connect] of [
  ["a client of 2026-07-28", connectStateless],
  ["a client that begins by a handshake", connectEarlier],
] as const) {
  t.test(`${client} reads a long result page by page, from either form`, async (t) => {
    const { endpoint } = await openFilled(t);
    const mcp = await connect(t, endpoint.url);
    for (const form of ["structured", "text"] as const) {
      const ids: unknown[] = [];
      let offset: unknown = 0;
      let pages = 0;
      while (offset !== undefined) {
        const answer = await mcp.call("select", { ...select, offset });
        const page = form === "text" ? JSON.parse(answer.text) : answer.structured;
        ids.push(...page.rows.map(({ id }: { id: number }) => id));
        t.equal(page.truncated, page.next_offset !== undefined);
        offset = page.next_offset;
        pages++;
      }
      t.same(
        ids,
        Array.from({ length: 300 }, (_, id) => id),
        form,
      );
      t.ok(pages > 1, `${pages} pages`);
    }
  });
}

t.test("a result is no larger than it may be, and its text is short", async (t) => {
  const { endpoint } = await openFilled(t);
  for (const call of [statelessCall, handshakeCall]) {
    const { body } = await ask(
      endpoint.url,
      call("tools/call", { name: "select", arguments: select }),
    );
    t.ok(body.length <= resultBytes, `${body.length} bytes`);
    t.ok(body.length > resultBytes / 2, "as much as fits");
  }
  const mcp = await connectStateless(t, endpoint.url);
  const { text, structured } = await mcp.call("select", select);
  t.ok(text.length <= resultBytes / 8);
  const few = await mcp.call("select", { ...select, limit: 2 });
  t.same(JSON.parse(few.text), few.structured, "few rows are the same in both");
  t.match(structured, { truncated: true });
});

t.test("a row that no result can hold is an error that says what to do", async (t) => {
  const { endpoint, ask: query } = await openFilled(t);
  const values = [{ id: -1, name: "n".repeat(100_000) }];
  await query({ Insert: { database: "main", table: "users", values } });
  const mcp = await connectStateless(t, endpoint.url);
  t.match(await mcp.call("select", select), {
    isError: true,
    text: /larger than a result may be, which is 65536 bytes: ask for fewer columns \(result_too_large\)$/,
  });
  const ids = { ...select, columns: ["id"], limit: 1 };
  t.match(await mcp.call("select", ids), { structured: { rows: [{ id: -1 }] } });
});

t.test("an answer of any spelling is passed on, with every number's digits", async (t) => {
  const data = [{ id: 1, big: "BIG", text: 'a\nb "c" \\', real: 1.5, deep: [{ a: null }] }];
  const body = JSON.stringify({ status: "success", data }, null, "\r\n ").replace(
    '"BIG"',
    "-1e400",
  );
  const url = await openAnswering(t, async () => ({
    status: 200,
    body: Buffer.from(body),
    isCut: false,
  }));
  for (const connect of [connectStateless, connectEarlier]) {
    const mcp = await connect(t, url);
    const { structured } = await mcp.call("select", select);
    t.same(structured, { rows: [{ ...data[0], big: "-1e400" }], truncated: false });
  }
});

t.test(
  "what is wrong with arguments is said with its place and the form that is right",
  async (t) => {
    const { endpoint } = await openEmbedded(t, { grants: owner });
    const mcp = await connectStateless(t, endpoint.url);
    const table = { database: "main", table: "users" };
    const cases: [tool: string, args: Record<string, unknown>, text: RegExp][] = [
      [
        "select",
        { ...select, where: "id = 1" },
        /^Failed: where: an object is expected, a string was found; where is written like {"column": "id", "cmp": "=", "value": 1}, or .* \(wrong_type\)$/,
      ],
      [
        "select",
        { ...select, where: { and: [{ column: "id", cmp: "==", value: 1 }] } },
        /^Failed: where.and\[0\].cmp: .*allowed: =, !=, .*\(invalid_value\)$/,
      ],
      [
        "select",
        { ...select, colums: ["id"] },
        /^Failed: the field "colums" is unknown; allowed: database, from, columns, .*\(unknown_field\)$/,
      ],
      [
        "select",
        { ...select, limit: "10" },
        /^Failed: limit: a number is expected, a string was found \(wrong_type\)$/,
      ],
      [
        "insert",
        { ...table, values: { id: 1 } },
        /^Failed: values: an array is expected, an object was found; values is written like \[{"id": 1, .*\(wrong_type\)$/,
      ],
      [
        "insert",
        { ...table, values: [{ id: 1 }, 2] },
        /^Failed: values\[1\]: an object is expected, a number was found; /,
      ],
      [
        "delete",
        table,
        /^Failed: the field "where" is left out; required: database, table, where; where is written like .*, or null \(missing_field\)$/,
      ],
      [
        "create_table",
        { ...table, columns: [{ name: "id" }] },
        /^Failed: columns\[0\]: the field "type" is left out; required: name, type; columns is written like /,
      ],
      [
        "list_tables",
        { database: "a b" },
        /^Failed: database: "a b" is no plain name; allowed: .*\(invalid_name\)$/,
      ],
      [
        "list_databases",
        { database: "main" },
        /^Failed: the field "database" is unknown; allowed: none \(unknown_field\)$/,
      ],
    ];
    for (const [tool, args, text] of cases) {
      t.match(
        await mcp.call(tool, args),
        { isError: true, text },
        `${tool} ${JSON.stringify(args)}`,
      );
    }
  },
);
