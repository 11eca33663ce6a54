import fc from "fast-check";
import t from "tap";
import { examplesOf, readGuide } from "../../generate/query-cases.ts";
import { openSetting } from "../gateway/kit.ts";
import { startGateway } from "../kit/gateway.ts";
import { query as arbitraryQuery } from "../query/arbitrary.ts";
import { check, type Sent } from "./openapi-answers.ts";
import { answerSchema, schemaAt } from "./openapi-kit.ts";

t.test("what is refused of a query, the document refuses too, and knows the codes", async (t) => {
  const { gateway, upstream } = await openSetting(t);
  const token = await gateway.login();
  const bob = await gateway.addUser("bob", "ReadOnly");
  const place = { database: "main", table: "t" };
  const drop = { DropTable: place };
  const where = (condition: unknown) => ({ Delete: { ...place, where: condition } });
  const bad: [string, unknown][] = [
    ["not_an_object", []],
    ["no_operation", {}],
    ["unknown_operation", { Truncate: place }],
    ["several_operations", { DropTable: place, op: "select" }],
    ["missing_field", { DropTable: { database: "main" } }],
    ["missing_field", { Delete: place }],
    ["unknown_field", { DropTable: { ...place, hint: 1 } }],
    ["invalid_name", { DropTable: { ...place, table: "a.b" } }],
    ["wrong_type", { DropTable: { ...place, table: 7 } }],
    ["batch_size", { Batch: [] }],
    ["not_in_batch", { Batch: [{ CreateDatabase: { database: "x" } }] }],
    ["invalid_type", { CreateTable: { ...place, columns: [{ name: "a", type: "int(" }] } }],
    ["invalid_column", where({ column: "a'b", cmp: "=", value: 1 })],
    ["invalid_value", where({ column: "a", cmp: "~", value: 1 })],
    ["invalid_value", { Insert: { ...place, values: [] } }],
  ];
  const cases: [code: string, sent: Sent][] = [
    ...bad.map(([code, body]): [string, Sent] => [code, { body, token }]),
    ["role_insufficient", { body: drop, token: bob }],
    ["batch_member_denied", { body: { Batch: [drop] }, token: bob }],
    ["unauthenticated", { body: drop, token: undefined }],
  ];
  for (const [code, sent] of cases) await check(t, gateway, ["POST /query", code, sent]);
  t.equal(upstream.take().length, 0);
});

t.test("every answer of the engine is one of the document's", async (t) => {
  const gateway = await startGateway(t);
  const token = await gateway.login();
  const table = { database: "main", table: "customers" };
  const refused = [
    { Insert: { ...table, values: [{ id: 1 }] } },
    { Select: { database: "main", from: "customers", columns: ["nothing"] } },
    { DropTable: { database: "main", table: "nothing" } },
  ].map((query) => JSON.stringify(query));
  const statuses = new Set<number>();
  for (const body of [...examplesOf(readGuide()).map((example) => example.body), ...refused]) {
    const answer = await gateway.query(body, token);
    const holds = answerSchema("POST /query", answer.status);
    t.ok(holds?.(answer.body), `${body}: ${answer.text}: ${JSON.stringify(holds?.errors)}`);
    statuses.add(answer.status);
  }
  t.strictSame([...statuses].sort(), [200, 400, 404, 409]);
});

t.test("every query of the grammar is one of the document's", async (t) => {
  const isQuery = schemaAt("components", "schemas", "Query");
  fc.assert(fc.property(arbitraryQuery, (query) => isQuery?.(query) === true));
  t.pass();
});
