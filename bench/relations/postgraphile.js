// PostGraphile with its aggregates, and a token verified for each request that names the PostgreSQL role.
// Arguments: the database URL, the file of the secret, and the number of connections. Prints its port.
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { PgAggregatesPreset } from "@graphile/pg-aggregates";
import jwt from "jsonwebtoken";
import { postgraphile } from "postgraphile";
import { makePgService } from "postgraphile/adaptors/pg";
import { grafserv } from "postgraphile/grafserv/node";
import { PostGraphileAmberPreset } from "postgraphile/presets/amber";

const [, , connectionString, secretFile, connections] = process.argv;
const secret = readFileSync(secretFile, "utf8");
const checks = { algorithms: ["HS256"], issuer: "gatehouse", audience: "gatehouse" };

function roleOf(authorization = "") {
  try {
    return jwt.verify(authorization.replace(/^Bearer /, ""), secret, checks).role;
  } catch {
    throw Object.assign(new Error("invalid token"), { statusCode: 401 });
  }
}

const instance = postgraphile({
  extends: [PostGraphileAmberPreset, PgAggregatesPreset],
  pgServices: [
    makePgService({
      connectionString,
      schemas: ["main"],
      poolConfig: { max: Number(connections) },
    }),
  ],
  grafast: {
    context: ({ node }) => ({ pgSettings: { role: roleOf(node?.req.headers.authorization) } }),
  },
  grafserv: { graphiql: false, watch: false },
});
const server = createServer();
await instance.createServ(grafserv).addTo(server);
await instance.getSchema();
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
