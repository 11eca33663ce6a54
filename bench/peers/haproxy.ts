import { writeFileSync } from "node:fs";
import path from "node:path";
import { freePort } from "../../test/kit/free-port.ts";
import { Program } from "../rig/program.ts";
import { GATEWAY_CORE, type System } from "./system.ts";
import type { Algorithm, World } from "./world.ts";

const BUFFER_BYTES = 65_536;

/** Checks signature, times and issuer of the token, then the role on the database. */
function rules(world: World, algorithm: Algorithm): string {
  const key =
    algorithm === "HS256" ? world.read("HS256.secret") : `${world.directory}/${algorithm}.pem`;
  const claim = (name: string) => `var(txn.bearer),jwt_payload_query('$.${name}')`;
  const named = (operation: string) => `req.body,json_query('$.${operation}.database')`;
  const writes = ["Insert", "Update", "Delete"].map(
    (operation) => `
  http-request set-var(txn.db) ${named(operation)} if !{ var(txn.db) -m found }
  http-request set-var(txn.need) str(write) if { var(txn.db) -m found } !{ var(txn.need) -m found }`,
  );
  return `
  http-request set-var(txn.bearer) http_auth_bearer
  http-request set-var(txn.alg) var(txn.bearer),jwt_header_query('$.alg')
  http-request deny deny_status 401 unless { var(txn.alg) -m str ${algorithm} }
  http-request deny deny_status 401 unless { var(txn.bearer),jwt_verify(txn.alg,"${key}") 1 }
  http-request set-var(txn.now) date()
  http-request set-var(txn.exp) var(txn.bearer),jwt_payload_query('$.exp','int')
  http-request deny deny_status 401 if { var(txn.exp),sub(txn.now) -m int lt 0 }
  http-request deny deny_status 401 unless { ${claim("iss")} -m str gatehouse }
  http-request deny deny_status 401 unless { ${claim("aud")} -m str gatehouse }
  http-request set-var(txn.user) ${claim("sub")}
  http-request set-var(txn.db) ${named("Select")}
  http-request set-var(txn.need) str(read) if { var(txn.db) -m found }${writes.join("")}
  http-request deny deny_status 403 unless { var(txn.db) -m found }
  http-request set-var(txn.role) var(txn.user),concat(:,txn.db),map_str(${world.directory}/roles.map)
  http-request deny deny_status 403 unless { var(txn.role) -m found }
  http-request deny deny_status 403 if { var(txn.need) -m str write } !{ var(txn.role) -m str write }
  http-request del-header authorization
  http-request set-header x-user %[var(txn.user)]`;
}

/**
 * Starts HAProxy with one thread.
 *
 * @param algorithm of the tokens to verify; undefined for a forward without checks
 */
export async function startHaproxy(
  world: World,
  upstreamPort: number,
  algorithm: Algorithm | undefined,
): Promise<System> {
  const port = await freePort();
  const file = path.join(world.directory, `haproxy-${algorithm ?? "open"}-${port}.cfg`);
  writeFileSync(
    file,
    `global
  nbthread 1
  maxconn 9000
  tune.bufsize ${BUFFER_BYTES}
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  ${algorithm === undefined ? "" : "option http-buffer-request"}
  http-reuse always
frontend gate
  bind 127.0.0.1:${port}${algorithm === undefined ? "" : rules(world, algorithm)}
  default_backend database
backend database
  server one 127.0.0.1:${upstreamPort} maxconn 64
`,
  );
  const program = new Program("haproxy", ["-db", "-f", file], GATEWAY_CORE);
  await program.listening(port);
  const name = algorithm === undefined ? "HAProxy, no check" : `HAProxy, ${algorithm}`;
  // HAProxy cannot inspect a body that is larger than its buffer.
  const largestBody = algorithm === undefined ? Number.POSITIVE_INFINITY : BUFFER_BYTES / 2;
  const checks = algorithm === undefined ? "nothing" : "token and query";
  return { name, port, program, algorithm, checks, largestBody };
}
