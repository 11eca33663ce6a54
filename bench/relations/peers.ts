import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { freePort } from "../../test/kit/free-port.ts";
import { installPackages } from "../install.ts";
import { startGatehouse } from "../peers/gatehouse.ts";
import { buildGo } from "../peers/go-program.ts";
import { withKeys } from "../peers/narrowing.ts";
import { GATEWAY_CORE, type System } from "../peers/system.ts";
import { isOnPath } from "../peers/systems.ts";
import type { World } from "../peers/world.ts";
import { Program, treeSeconds } from "../rig/program.ts";
import { DATABASE, granted, type Page } from "./shop.ts";

/** Gatehouse's default; that of the peers is 10. */
const CONNECTIONS = 16;

/** The name of the server that checks nothing. */
export const BY_HAND = "node:http + pg, no check";

type Row = Readonly<Record<string, unknown>>;
type Request = Pick<Page, "gatehouse" | "postgraphile" | "prest">;

/** A system over PostgreSQL that verifies tokens and checks rights to tables. */
export interface Peer extends Pick<System, "name" | "port" | "program"> {
  readonly algorithm: "ES256" | "HS256";
  /** The path and the body of a request; GET without a body. */
  readonly request: (asked: Request) => { readonly path: string; readonly body?: string };
  /** The rows of a response; those of a join if they are nested. */
  readonly rows: (response: string) => Row[];
}

function joined(order: Row, lines: readonly Row[] | undefined): Row[] {
  return lines?.map((line) => ({ ...order, ...line })) ?? [order];
}

/** How Gatehouse is asked. */
const ours: Pick<Peer, "request" | "rows"> = {
  request: ({ gatehouse }) => ({
    path: "/query",
    body: JSON.stringify({ Select: { database: "main", ...gatehouse } }),
  }),
  rows: (response) => {
    const { data }: { data: { lines?: Row[] }[] } = JSON.parse(response);
    return data.flatMap(({ lines, ...order }) => joined(order, lines));
  },
};

async function startOurs(world: World, url: string): Promise<Peer> {
  const editAccess = withKeys(`tables = ${JSON.stringify(granted)}`);
  const { name, port, program } = await startGatehouse(world, url, { editAccess });
  return {
    name,
    port,
    algorithm: "ES256",
    // With the process that hashes passwords.
    program: {
      cpuSeconds: () => treeSeconds(program.child.pid ?? 0),
      stop: () => program.end(),
    },
    ...ours,
  };
}

/** Checks nothing: it shows what `node:http` and `pg` cost. */
async function startByHand(_: World, url: string): Promise<Peer> {
  const script = fileURLToPath(new URL("by-hand.js", import.meta.url));
  const program = new Program(process.execPath, [script, url, String(CONNECTIONS)], GATEWAY_CORE);
  const port = Number(await program.printed(/^(\d+)$/m));
  const { request, rows } = ours;
  return { name: BY_HAND, port, program, algorithm: "ES256", request, rows };
}

interface PostgraphileOrders {
  readonly nodes?: readonly { readonly lines?: { readonly nodes: readonly Row[] } }[];
  readonly groupedAggregates: readonly {
    readonly keys: readonly string[];
    readonly sum: { readonly total: string };
    readonly distinctCount: { readonly rowId: string };
  }[];
}

async function startPostgraphile(world: World, url: string): Promise<Peer> {
  installPackages(import.meta.dirname);
  const program = new Program(
    process.execPath,
    [
      fileURLToPath(new URL("postgraphile.js", import.meta.url)),
      url.replace("gatehouse@", "postgraphile@"),
      path.join(world.directory, "HS256.secret"),
      String(CONNECTIONS),
    ],
    GATEWAY_CORE,
    { ...process.env, NODE_ENV: "production", GRAPHILE_ENV: "production" },
  );
  const port = Number(await program.printed(/^(\d+)$/m));
  return {
    name: "PostGraphile",
    port,
    program,
    algorithm: "HS256",
    request: ({ postgraphile }) => ({
      path: "/graphql",
      body: JSON.stringify({ query: postgraphile }),
    }),
    rows: (response) => {
      const orders: PostgraphileOrders = JSON.parse(response).data.allOrders;
      const nested = orders.nodes?.flatMap(({ lines, ...order }) => joined(order, lines?.nodes));
      if (nested !== undefined) return nested;
      return orders.groupedAggregates
        .map(({ keys: [status = ""], sum, distinctCount }) => ({
          status,
          count: Number(distinctCount.rowId),
          sum: Number(sum.total),
        }))
        .toSorted((a, b) => (a.status < b.status ? -1 : 1));
    },
  };
}

/** Its rules name tables, and are the same for every user. */
async function startPrest(world: World, url: string): Promise<Peer> {
  const prestd = buildGo({
    name: "prest",
    module: "github.com/prest/prest",
    version: "v1.5.5",
    package: "github.com/prest/prest/cmd/prestd",
  });
  const port = await freePort();
  const home = path.join(world.directory, "prest");
  mkdirSync(home);
  const config = path.join(home, "prest.toml");
  const rules = granted.map(
    (name) => `[[access.tables]]\nname = "${name}"\npermissions = ["read"]\nfields = ["*"]\n`,
  );
  writeFileSync(
    config,
    `[http]
host = "127.0.0.1"
port = ${port}
[pg]
url = "${url}"
maxopenconn = ${CONNECTIONS}
maxidleconn = ${CONNECTIONS}
[ssl]
mode = "disable"
[jwt]
key = "${world.read("HS256.secret")}"
[queries]
location = "${home}/queries"
[cache]
storagepath = "${home}"
[access]
restrict = true
${rules.join("")}`,
  );
  const program = new Program(prestd, [], GATEWAY_CORE, { ...process.env, PREST_CONF: config });
  await program.listening(port);
  return {
    name: "pREST",
    port,
    program,
    algorithm: "HS256",
    request: ({ prest }) => ({ path: `/${DATABASE}/main/${prest}` }),
    rows: (response) => JSON.parse(response),
  };
}

/** Starts Gatehouse and its peers; they stop with the stack. */
export async function startPeers(
  world: World,
  url: string,
  opened: AsyncDisposableStack,
): Promise<Peer[]> {
  const starts = [startOurs, startByHand, startPostgraphile];
  if (isOnPath("go")) starts.push(startPrest);
  else console.error("without go, pREST is left out");
  const peers: Peer[] = [];
  for (const start of starts) {
    const peer = await start(world, url);
    opened.defer(() => peer.program.stop());
    peers.push(peer);
  }
  return peers;
}
