import { writeFileSync } from "node:fs";
import path from "node:path";
import { freePort } from "../../test/kit/free-port.ts";
import { Program } from "../rig/program.ts";
import { buildGo, type GoModule } from "./go-program.ts";
import { GATEWAY_CORE, type System } from "./system.ts";
import type { Algorithm, World } from "./world.ts";

interface GoPeer extends GoModule {
  readonly title: string;
  readonly algorithm: Algorithm;
  /** Writes the configuration and returns the flags. */
  readonly configure: (
    world: World,
    port: number,
    upstream: string,
  ) => string[] | Promise<string[]>;
}

function written(world: World, name: string, content: unknown): string {
  const file = path.join(world.directory, name);
  writeFileSync(file, JSON.stringify(content));
  return file;
}

const vmauth: GoPeer = {
  name: "vmauth",
  module: "github.com/VictoriaMetrics/VictoriaMetrics",
  version: "v1.140.0",
  package: "github.com/VictoriaMetrics/VictoriaMetrics/app/vmauth",
  title: "vmauth, ES256",
  algorithm: "ES256",
  configure: (world, port, upstream) => {
    const jwt = {
      public_key_files: [path.join(world.directory, "ES256.pem")],
      match_claims: { iss: "gatehouse", aud: "gatehouse" },
    };
    const file = written(world, "vmauth.yml", { users: [{ jwt, url_prefix: upstream }] });
    return [
      `-auth.config=${file}`,
      `-httpListenAddr=127.0.0.1:${port}`,
      "-loggerLevel=ERROR",
      "-maxConcurrentPerUserRequests=2000",
    ];
  },
};

/** Accepts only RS256 without an OpenID provider. */
const oauth2Proxy: GoPeer = {
  name: "oauth2-proxy",
  module: "github.com/oauth2-proxy/oauth2-proxy/v7",
  version: "v7.8.1",
  title: "oauth2-proxy, RS256",
  algorithm: "RS256",
  configure: (world, port, upstream) => [
    "--provider=oidc",
    "--skip-oidc-discovery",
    "--oidc-issuer-url=gatehouse",
    "--login-url=http://127.0.0.1:9/",
    "--redeem-url=http://127.0.0.1:9/",
    `--oidc-public-key-file=${path.join(world.directory, "RS256.pem")}`,
    "--client-id=gatehouse",
    "--client-secret=unused",
    `--cookie-secret=${"s".repeat(32)}`,
    "--skip-jwt-bearer-tokens",
    "--api-route=^/",
    "--oidc-email-claim=sub",
    "--email-domain=*",
    "--request-logging=false",
    "--auth-logging=false",
    "--standard-logging=false",
    `--http-address=127.0.0.1:${port}`,
    `--upstream=${upstream}`,
  ],
};

const oathkeeper: GoPeer = {
  name: "oathkeeper",
  module: "github.com/ory/oathkeeper",
  version: "v0.40.9",
  title: "Ory Oathkeeper, ES256",
  algorithm: "ES256",
  configure: async (world, port, upstream) => {
    const jwt = {
      jwks_urls: [`file://${path.join(world.directory, "ES256.jwks")}`],
      trusted_issuers: ["gatehouse"],
      target_audience: ["gatehouse"],
      allowed_algorithms: ["ES256"],
    };
    const rule = {
      id: "query",
      match: { url: `http://127.0.0.1:${port}/query`, methods: ["POST"] },
      authenticators: [{ handler: "jwt" }],
      authorizer: { handler: "allow" },
      mutators: [{ handler: "header" }],
      upstream: { url: upstream },
    };
    const rules = written(world, "oathkeeper-rules.json", [rule]);
    const file = written(world, "oathkeeper.json", {
      serve: {
        proxy: { host: "127.0.0.1", port },
        api: { host: "127.0.0.1", port: await freePort() },
        prometheus: { host: "127.0.0.1", port: await freePort() },
      },
      access_rules: { repositories: [`file://${rules}`] },
      authenticators: { jwt: { enabled: true, config: jwt } },
      authorizers: { allow: { enabled: true } },
      mutators: { header: { enabled: true, config: { headers: { "X-User": "{{ .Subject }}" } } } },
      log: { level: "panic" },
    });
    return ["serve", "--config", file, "--sqa-opt-out"];
  },
};

/** Gateways in Go. They verify a token's signature, times, issuer and audience, and do not read bodies. */
export const goPeers: readonly GoPeer[] = [vmauth, oauth2Proxy, oathkeeper];

/** Builds a gateway and starts it on one core. */
export async function startGo(peer: GoPeer, world: World, upstreamPort: number): Promise<System> {
  const { title, algorithm } = peer;
  const port = await freePort();
  const flags = await peer.configure(world, port, `http://127.0.0.1:${upstreamPort}`);
  const program = new Program(buildGo(peer), flags, GATEWAY_CORE);
  await program.listening(port);
  const largestBody = Number.POSITIVE_INFINITY;
  return { name: title, port, program, algorithm, checks: "token", largestBody };
}
