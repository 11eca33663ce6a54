import { Refusal } from "../../refusal.ts";
import { sendSuccess } from "../answer.ts";
import type { Exchange } from "../exchange.ts";
import type { Gateway } from "../gateway.ts";
import { databaseParameter, type Endpoint, tableParameter } from "../route.ts";

/** Answers with what is found, unless the client leaves before that. */
function schemaRoute(
  find: (gateway: Gateway, exchange: Exchange, signal: AbortSignal) => Promise<object>,
): Endpoint {
  return {
    authentication: "data",
    async handle(gateway, exchange) {
      const client = new AbortController();
      exchange.whenClosed = () => client.abort();
      const isOffered = await gateway.schema.isOffered(exchange, client.signal);
      if (isOffered === false) throw new Refusal("schema_not_offered");
      const data = await find(gateway, exchange, client.signal);
      exchange.verdict.allow();
      sendSuccess(exchange, 200, { data });
    },
  };
}

/** `GET /schema`: the databases that the caller may read. */
export const databases = schemaRoute(async ({ schema }, exchange, signal) => ({
  databases: await schema.listDatabases(exchange, signal),
}));

/** `GET /schema/<database>`: its tables. */
export const tables = schemaRoute(async ({ schema }, exchange, signal) => ({
  tables: await schema.listTables(exchange, databaseParameter(exchange), signal),
}));

/** `GET /schema/<database>/<table>`: its columns, and what else its database tells of it. */
export const table = schemaRoute(({ schema }, exchange, signal) =>
  schema.describeTable(exchange, databaseParameter(exchange), tableParameter(exchange), signal),
);
