import t from "tap";
import { startGateway } from "../kit/gateway.ts";
import { connectStateless } from "../mcp/clients.ts";

const place = { database: "main", table: "t" };
const columns = [
  { name: "id", type: "bigint", primary_key: true },
  { name: "text", type: "text" },
];
const select = {
  Select: { database: "main", from: "t", columns: ["*"], order_by: { column: "id" } },
};
const filler = "x".repeat(100);
const rowCount = 20_000;

const gateway = await startGateway(t, {
  config: "[mcp]\nrow_limit = 50\nresult_bytes = 16384\n",
});
const token = await gateway.login();

t.test("rows are streamed through the gateway in the requested format", async (t) => {
  await gateway.query({ CreateDatabase: { database: "main" } }, token);
  await gateway.query({ CreateTable: { ...place, columns } }, token);
  const values = Array.from({ length: rowCount }, (_, id) => ({ id, text: `${id},${filler}` }));
  t.equal((await gateway.query({ Insert: { ...place, values } }, token)).status, 200);
  const ask = (accept: string, body: object, bearer = token) => {
    const headers = {
      "content-type": "application/json",
      authorization: `Bearer ${bearer}`,
      accept,
    };
    return gateway.request("/query", { method: "POST", headers, body: JSON.stringify(body) });
  };

  const lines = await ask("application/x-ndjson", select);
  t.equal(lines.headers.get("content-type"), "application/x-ndjson");
  t.equal(lines.headers.get("x-gatehouse-decision"), "allow");
  t.equal(lines.text, values.map((row) => `${JSON.stringify(row)}\n`).join(""));

  const csv = await ask("text/csv;q=0.9, application/json;q=0.1", select);
  t.equal(csv.headers.get("content-type"), "text/csv; charset=utf-8; header=present");
  t.equal(csv.text, `id,text\r\n${values.map(({ id, text }) => `${id},"${text}"\r\n`).join("")}`);

  const json = "application/json";
  const nothing = { Select: { ...select.Select, from: "nothing" } };
  const missing = await ask("text/csv", nothing);
  t.match(missing, { status: 404, body: { code: "table_not_found" } });
  t.equal(missing.headers.get("content-type"), json);
  const none = { ...place, where: { column: "id", cmp: "<", value: 0 } };
  t.match(await ask("text/csv", { Delete: none }), { status: 200, body: { affected: 0 } });
  const stranger = await gateway.addUser("stranger", "ReadOnly", "elsewhere");
  t.match(await ask("text/csv", select, stranger), { status: 403, body: { code: "no_grant" } });

  const audit = await gateway.service.logged(
    ({ status, bytes }) => status === 200 && Number(bytes) > lines.text.length,
  );
  t.match(audit, { decision: "allow", user: "admin", operations: [{ operation: "Select" }] });
  const exports = () => gateway.service.log.filter(({ format }) => format !== undefined);
  t.match(exports(), [
    { format: "ndjson", rows: rowCount },
    { format: "csv", rows: rowCount },
    { format: "csv", rows: 0, status: 404 },
  ]);
  const few = { Select: { ...select.Select, limit: 3 } };
  t.equal((await ask("text/csv", few)).text.split("\r\n").length, 5);
  await gateway.service.logged(({ format, rows }) => format === "csv" && rows === 3);
  const empty = { Select: { ...few.Select, where: none.where } };
  t.equal((await ask("application/x-ndjson", empty)).text, "");
  await gateway.service.logged(({ format, rows }) => format === "ndjson" && rows === 0);
});

t.test("over MCP, the audit counts the rows in the tool's result", async (t) => {
  const wide = { database: "main", table: "wide" };
  await gateway.query({ CreateTable: { ...wide, columns } }, token);
  const values = Array.from({ length: 100 }, (_, id) => ({ id, text: filler.repeat(5) }));
  await gateway.query({ Insert: { ...wide, values } }, token);
  const mcp = await connectStateless(t, `${gateway.url}/mcp`, token);
  const { structured } = await mcp.call("select", { ...select.Select, from: "wide", limit: 40 });
  const rows = structured?.rows;
  const shown = Array.isArray(rows) ? rows.length : 0;
  t.ok(shown > 0 && shown < 40, `${shown} rows fit`);
  const line = await gateway.service.logged(({ via, rows }) => via === "mcp" && rows !== undefined);
  t.equal(line.rows, shown);
  const missing = await mcp.call("select", { ...select.Select, from: "nothing" });
  t.equal(missing.isError, true);
  await gateway.service.logged(({ via, toolStatus }) => via === "mcp" && toolStatus === 404);
});
