import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import path from "node:path";
import { giveToOwner } from "../../engine/postgres/binaries.ts";
import { type Pooler, startPooler } from "../../engine/postgres/pooler.ts";
import { type PostgresServer, startPostgres } from "../../engine/postgres/server.ts";
import { eventually } from "../../kit/eventually.ts";
import { freePort } from "../../kit/free-port.ts";
import { temporaryHome } from "../../kit/gateway.ts";
import { makeStore, type StoreServer, type Teardown, type TestStore } from "../kit.ts";
import { makeNetwork, type Network } from "./network.ts";
import { SystemProgram } from "./program.ts";
import { FaultyReplica, MAX_STALENESS } from "./replica.ts";

const REPLICAS = 3;

/** Replicas on their own hosts, between HAProxy and a store. All of them can fail. */
export interface Rig {
  readonly store: TestStore;
  readonly network: Network;
  readonly replicas: readonly FaultyReplica[];
  /** Undefined if the caller controls the server. */
  readonly postgres: PostgresServer | undefined;
  readonly pooler: Pooler | undefined;
  /** The URL of HAProxy. */
  readonly balancer: string | undefined;
}

/** An upstream that answers every query with no rows. */
async function startUpstream(t: Teardown): Promise<string> {
  const server = createServer((request, response) => {
    request.resume().on("end", () => {
      response.writeHead(200, { "content-type": "application/json" });
      response.end('{"status":"success","data":[]}');
    });
  });
  server.listen(0, "0.0.0.0");
  await once(server, "listening");
  t.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
  const address = server.address();
  if (typeof address === "string" || address === null) throw new Error("no port");
  return String(address.port);
}

/** HAProxy as in docs/reverse-proxy.md, with the name of the replica in each answer. */
async function startBalancer(
  t: Teardown,
  { address, hosts }: Network,
): Promise<string | undefined> {
  const directory = temporaryHome(t);
  const port = await freePort();
  const servers = hosts.map((host, at) => `  server ${at} ${host.address}`).join("\n");
  const settings = `defaults
  mode http
  timeout connect 1s
  timeout client 30s
  timeout server 30s
frontend public
  bind ${address}:${port}
  default_backend gatehouse
backend gatehouse
  option redispatch
  option httpchk
  http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host gatehouse
  http-check expect status 200
  http-response set-header X-Replica %s
  default-server check inter 300ms fall 2 rise 1
${servers}
`;
  const file = path.join(directory, "haproxy.cfg");
  writeFileSync(file, settings);
  giveToOwner(directory);
  const program = SystemProgram.find(t, "haproxy", ["-db", "-f", file]);
  program?.start();
  return program === undefined ? undefined : `http://${address}:${port}`;
}

/** Waits until every replica decides. */
export async function untilWhole({ replicas }: Rig): Promise<void> {
  for (const { gateway, name } of replicas) {
    await eventually(`replica ${name} is ready`, async () => {
      const signal = AbortSignal.timeout(2000);
      const answer = await gateway.request("/readyz", { signal }).catch(() => undefined);
      return answer?.status === 200 && answer.body.store === "reached";
    });
  }
}

/** @param server of the store; by default a new PostgreSQL */
export async function startRig(t: Teardown, server?: StoreServer): Promise<Rig> {
  const postgres = server === undefined ? await startPostgres(t) : undefined;
  const target = server ?? postgres;
  if (target === undefined) throw new Error("no server");
  const store = await makeStore(t, { maxStaleness: MAX_STALENESS }, target);
  const network = await makeNetwork(t, REPLICAS, target.port);
  const upstream = `http://${network.address}:${await startUpstream(t)}`;
  const replicas = network.hosts.map(
    (host, at) => new FaultyReplica(t, String(at), host, store, upstream),
  );
  await Promise.all(replicas.map((replica) => replica.start()));
  const pooler = await startPooler(t, target.port, "server_login_retry = 0.5");
  const balancer = await startBalancer(t, network);
  const rig: Rig = { store, network, replicas, postgres, pooler, balancer };
  await untilWhole(rig);
  return rig;
}
