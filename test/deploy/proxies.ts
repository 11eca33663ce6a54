/** Starts the reverse proxies of `deploy/` from their configuration files, on free ports. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import path from "node:path";
import type { Test } from "tap";
import { makeCertificate } from "../kit/certificate.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { Wire } from "../kit/wire.ts";
import { deployed, fill } from "./programs.ts";

export const PUBLIC_HOST = "gate.example.com";

interface Placement {
  readonly directory: string;
  readonly cert: string;
  readonly key: string;
  readonly pair: string;
  readonly tlsPort: number;
  readonly plainPort: number;
  /** `host:port` of the gateway. */
  readonly gateway: string;
}

interface ProxyKind {
  readonly program: string;
  readonly file: string;
  readonly needs: readonly string[];
  readonly adapt: (text: string, places: Placement) => string;
  readonly run: (file: string, places: Placement) => string[];
}

function nginxAround(content: string, { directory }: Placement): string {
  const kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
  const temporary = kinds.map((kind) => `${kind}_temp_path ${directory}/${kind};`).join("\n");
  return `pid ${directory}/pid;
error_log stderr;
events {}
http {
access_log off;
${temporary}
${content}
}
`;
}

function bindHaproxy(text: string, { pair, tlsPort, plainPort }: Placement): string {
  return fill(text, {
    "bind :80": `bind 127.0.0.1:${plainPort}`,
    "bind :443": `bind 127.0.0.1:${tlsPort}`,
    [`/etc/haproxy/${PUBLIC_HOST}.pem`]: pair,
  });
}

const haproxy: ProxyKind = {
  program: "haproxy",
  file: "haproxy.cfg",
  needs: [
    "http-request set-header X-Forwarded-For %[src]",
    "http-request set-header X-Forwarded-Proto https",
    "http-request set-header X-Forwarded-Host %[req.hdr(host)]",
    "http-request set-header X-Request-Id %[unique-id]",
    "timeout server 1h",
  ],
  adapt: (text, places) => fill(bindHaproxy(text, places), { "127.0.0.1:8080": places.gateway }),
  run: (file) => ["-db", "-f", file],
};

export const proxies: readonly ProxyKind[] = [
  {
    program: "nginx",
    file: "nginx.conf",
    needs: [
      "proxy_set_header X-Forwarded-For $remote_addr;",
      "proxy_set_header X-Forwarded-Proto $scheme;",
      "proxy_set_header X-Forwarded-Host $http_host;",
      "proxy_set_header X-Request-Id $request_id;",
      "proxy_buffering off;",
      "proxy_request_buffering off;",
      "proxy_read_timeout 1h;",
    ],
    adapt: (text, places) =>
      nginxAround(
        fill(text, {
          "listen 80;": `listen 127.0.0.1:${places.plainPort};`,
          "listen 443 ": `listen 127.0.0.1:${places.tlsPort} `,
          "server 127.0.0.1:8080;": `server ${places.gateway};`,
          [`/etc/letsencrypt/live/${PUBLIC_HOST}/fullchain.pem`]: places.cert,
          [`/etc/letsencrypt/live/${PUBLIC_HOST}/privkey.pem`]: places.key,
        }),
        places,
      ),
    run: (file, { directory }) => ["-p", directory, "-c", file, "-g", "daemon off;"],
  },
  {
    program: "caddy",
    file: "Caddyfile",
    needs: [
      "header_up X-Forwarded-For {remote_host}",
      "header_up X-Forwarded-Proto {scheme}",
      "header_up X-Forwarded-Host {hostport}",
      "header_up X-Request-Id {http.request.uuid}",
      "flush_interval -1",
      "response_header_timeout 1h",
    ],
    adapt: (text, { cert, key, tlsPort, plainPort, gateway }) => {
      const options = `{\nadmin off\nhttp_port ${plainPort}\nhttps_port ${tlsPort}\n}\n`;
      const site = `${PUBLIC_HOST} {\n\tbind 127.0.0.1\n\ttls ${cert} ${key}\n`;
      const places = { [`${PUBLIC_HOST} {\n`]: site, "127.0.0.1:8080": gateway };
      return options + fill(text, places);
    },
    run: (file) => ["run", "--config", file, "--adapter", "caddyfile"],
  },
  haproxy,
];

/** @param hosts `host:port` of each replica */
export function replicasProxy([one = "", two = "", three = ""]: readonly string[]): ProxyKind {
  return {
    ...haproxy,
    file: "replicas/haproxy.cfg",
    adapt: (text, places) =>
      fill(bindHaproxy(text, places), {
        "/var/lib/haproxy/admin.sock": path.join(places.directory, "admin.sock"),
        "172.30.80.11:8080": one,
        "172.30.80.12:8080": two,
        "172.30.80.13:8080": three,
      }),
  };
}

export interface RunningProxy {
  readonly tlsPort: number;
  readonly plainPort: number;
  readonly directory: string;
  readonly ca: string;
}

async function makePlaces(directory: string, gatewayUrl: string): Promise<[Placement, string]> {
  const { cert, key } = makeCertificate(PUBLIC_HOST);
  const write = (name: string, content: string) => {
    const file = path.join(directory, name);
    writeFileSync(file, content, { mode: 0o600 });
    return file;
  };
  const places = {
    directory,
    cert: write("cert.pem", cert),
    key: write("key.pem", key),
    pair: write("pair.pem", cert + key),
    tlsPort: await freePort(),
    plainPort: await freePort(),
    gateway: new URL(gatewayUrl).host,
  };
  return [places, cert];
}

function spawnProxy(t: Test, program: string, flags: string[], home: string): ChildProcess {
  const env = { PATH: process.env.PATH, HOME: home };
  const child = spawn(program, flags, { cwd: home, env, stdio: ["ignore", "pipe", "pipe"] });
  t.teardown(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const exit = once(child, "exit");
    // The main process stops its children.
    child.kill("SIGTERM");
    await exit;
  });
  return child;
}

/** Starts a reverse proxy until the end of the test. */
export async function startProxy(t: Test, kind: ProxyKind, program: string, gatewayUrl: string) {
  const directory = temporaryHome(t);
  const [places, ca] = await makePlaces(directory, gatewayUrl);
  const file = path.join(directory, path.basename(kind.file));
  writeFileSync(file, kind.adapt(deployed(kind.file), places));
  const child = spawnProxy(t, program, kind.run(file, places), directory);
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding("utf8").on("data", (text: string) => (output += text));
  }
  await eventually(`${kind.program} listens`, async () => {
    if (child.exitCode !== null) throw new Error(`${kind.program} exited:\n${output}`);
    return !(await Wire.isRefused(`http://127.0.0.1:${places.tlsPort}`));
  });
  return { tlsPort: places.tlsPort, plainPort: places.plainPort, directory, ca };
}
