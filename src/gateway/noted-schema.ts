import type { Principal } from "../mcp/principal.ts";
import type { SchemaSource } from "../mcp/schema-source.ts";
import { Refusal } from "../refusal.ts";
import { noteDenial } from "./denial.ts";
import type { Exchange } from "./exchange.ts";

/** Questions of one request that the audit names; the rest are only counted. */
const NOTED_QUESTIONS = 16;

/** Notes for the audit what a request asks to know of databases and tables. */
function note(exchange: Exchange, operation: string, database = "", tables: string[] = []): void {
  exchange.operationCount++;
  if (exchange.operations.length >= NOTED_QUESTIONS) return;
  const asked = { operation, database, tables, role: undefined, entry: undefined };
  exchange.operations = [...exchange.operations, asked];
}

/** Notes a denial, and lets it pass on. */
async function orDenied<Answer>(exchange: Exchange, answer: Promise<Answer>): Promise<Answer> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof Refusal) noteDenial(exchange, error.code, error.status);
    throw error;
  }
}

/** A schema source of which every question, and every denial, is in the audit. */
export function noteQuestions(
  schema: SchemaSource,
  exchangeOf: (principal: Principal) => Exchange,
): SchemaSource {
  return {
    listDatabases(principal) {
      const exchange = exchangeOf(principal);
      note(exchange, "ListDatabases");
      return orDenied(exchange, schema.listDatabases(principal));
    },
    listTables(principal, database) {
      const exchange = exchangeOf(principal);
      note(exchange, "ListTables", database);
      return orDenied(exchange, schema.listTables(principal, database));
    },
    describeTable(principal, database, table) {
      const exchange = exchangeOf(principal);
      note(exchange, "DescribeTable", database, [table]);
      return orDenied(exchange, schema.describeTable(principal, database, table));
    },
    close: () => schema.close(),
  };
}
