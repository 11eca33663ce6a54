/** Logins from a page to a token, and refreshes of tokens. */
import { fileURLToPath } from "node:url";
import { childrenOf } from "../../test/kit/process-info.ts";
import { obtainTokens, refresh } from "../../test/oauth/flow.ts";
import { registered } from "../../test/oauth/kit.ts";
import { openSetting, PASSWORD } from "../login/setting.ts";
import { cpuSecondsOf, Program } from "../rig/program.ts";
import { quantile } from "../rig/statistics.ts";

/** Milliseconds for each run of one kind of work. */
export interface FlowCost {
  readonly name: string;
  /** Of the process that responds. */
  readonly cpu: number;
  /** Of the process that hashes passwords. */
  readonly hashing: number;
  readonly p50: number;
  readonly p99: number;
}

interface Server {
  readonly name: string;
  readonly url: string;
  readonly pid: number;
}

/** The child processes of a gateway without an engine: the hasher, after the first login. */
function hashingSeconds(pid: number): number {
  return childrenOf(pid).reduce((sum, child) => sum + cpuSecondsOf(child), 0);
}

async function measure(
  name: string,
  { pid }: Server,
  count: number,
  work: () => Promise<void>,
): Promise<FlowCost> {
  const [cpu, hashing] = [cpuSecondsOf(pid), hashingSeconds(pid)];
  const times: number[] = [];
  for (let at = 0; at < count; at++) {
    const startedAt = performance.now();
    await work();
    times.push(performance.now() - startedAt);
  }
  return {
    name,
    cpu: ((cpuSecondsOf(pid) - cpu) * 1000) / count,
    hashing: ((hashingSeconds(pid) - hashing) * 1000) / count,
    p50: quantile(times, 0.5),
    p99: quantile(times, 0.99),
  };
}

async function measureServer(server: Server, count: number): Promise<FlowCost[]> {
  const { name, url } = server;
  const login = { username: "known", password: PASSWORD };
  const clientId = await registered({ url });
  const flow = async () => void (await obtainTokens({ url }, { ...login, clientId }));
  for (let at = 0; at < 10; at++) await flow();
  const flows = await measure(`${name}: login page to token`, server, count, flow);
  let { refreshToken } = await obtainTokens({ url }, { ...login, clientId });
  const refreshing = async () => {
    const { status, body } = await refresh({ url }, clientId, refreshToken);
    if (status !== 200) throw new Error(JSON.stringify(body));
    refreshToken = String(body.refresh_token);
  };
  for (let at = 0; at < 100; at++) await refreshing();
  const registering = async () => void (await registered({ url }));
  return [
    flows,
    await measure(`${name}: refresh`, server, count * 10, refreshing),
    await measure(`${name}: registration of a client`, server, count * 5, registering),
  ];
}

/** Measures Gatehouse, and its library without password verification. */
export async function measureFlows(
  count: number,
  opened: AsyncDisposableStack,
): Promise<FlowCost[]> {
  const { url, service } = await openSetting(opened, {
    withImported: false,
    mcp: "registrations_per_hour = 1000000",
  });
  const script = fileURLToPath(new URL("bare-provider.ts", import.meta.url));
  const environment = { ...process.env, NODE_ENV: "production" };
  const bare = new Program(process.execPath, [script], undefined, environment);
  opened.defer(() => bare.stop());
  const port = await bare.printed(/^(\d+)$/m);
  const bareUrl = `http://127.0.0.1:${port}`;
  return [
    ...(await measureServer({ name: "Gatehouse", url, pid: service.child.pid ?? 0 }, count)),
    ...(await measureServer(
      { name: "bare oidc-provider, no password", url: bareUrl, pid: bare.child.pid ?? 0 },
      count,
    )),
  ];
}
