import { setTimeout as delay } from "node:timers/promises";
import { isAlive } from "../../kit/process-info.ts";
import type { Random } from "./random.ts";
import type { FaultyReplica } from "./replica.ts";
import type { Rig } from "./rig.ts";

export interface Fault {
  readonly name: string;
  /** Each subject has at most one fault at a time. */
  readonly subject: string;
  /** Causes the fault and ends it. */
  run(): Promise<void>;
}

/** Draws a fault; undefined if the rig lacks the part that would fail. */
type FaultKind = (rig: Rig, random: Random) => Fault | undefined;

/** Below the staleness limit, above it, and above a lease. */
const DURATIONS_MS = [700, 2800, 7600];
/** Below the staleness limit and above it. */
const CLOCK_JUMPS_MS = [900, 1800, -1800, 30_000, -30_000, 600_000, -600_000];

function seconds(milliseconds: number): string {
  return `${(milliseconds / 1000).toFixed(1)} s`;
}

function cutting(names: readonly ("store" | "clients")[]): FaultKind {
  return ({ replicas }, random) => {
    const replica = random.of(replicas);
    const length = random.of(DURATIONS_MS);
    const links = names.map((name) => replica.host[name]);
    return {
      subject: `links of ${replica.name}`,
      name: `cut ${replica.name} from ${names.join(" and ")} for ${seconds(length)}`,
      async run() {
        for (const link of links) link.cut();
        await delay(length);
        for (const link of links) link.restore();
      },
    };
  };
}

/** A paused replica may find the store cut off when it continues, and then has only its clocks. */
const pause: FaultKind = ({ replicas }, random) => {
  const replica = random.of(replicas);
  const length = random.of([1500, 7600, 8600]);
  const isCut = random.next() < 0.5;
  const { store } = replica.host;
  return {
    subject: `replica ${replica.name}`,
    name: `stop ${replica.name} for ${seconds(length)}${isCut ? ", cut from store when it wakes" : ""}`,
    async run() {
      replica.signal("SIGSTOP");
      if (isCut) store.cut();
      await delay(length);
      replica.signal("SIGCONT");
      await delay(800);
      if (isCut) store.restore();
    },
  };
};

const jump: FaultKind = ({ replicas }, random) => {
  const replica = random.of(replicas);
  const [there, length] = [random.of(CLOCK_JUMPS_MS), random.of([400, 1500, 4000])];
  return {
    subject: `replica ${replica.name}`,
    name: `set the clock of ${replica.name} by ${seconds(there)} for ${seconds(length)}`,
    async run() {
      replica.setClock(there);
      await delay(length);
      replica.setClock(0);
    },
  };
};

async function restart(replica: FaultyReplica, signal: NodeJS.Signals): Promise<void> {
  await replica.gateway.service.stop(signal);
  await replica.start();
}

const end: FaultKind = ({ replicas }, random) => {
  const replica = random.of(replicas);
  const signal = random.of(["SIGKILL", "SIGTERM"] as const);
  return {
    subject: `replica ${replica.name}`,
    name: `${signal} ${replica.name}, start it again`,
    run: () => restart(replica, signal),
  };
};

const crash: FaultKind = ({ postgres }, random) => {
  if (postgres === undefined) return undefined;
  const length = random.of([0, 1500, 4000]);
  return {
    subject: "PostgreSQL",
    name: `kill PostgreSQL, start it after ${seconds(length)}`,
    async run() {
      await postgres.crash();
      await delay(length);
      await postgres.start();
    },
  };
};

const terminate: FaultKind = ({ store }, random) => {
  const times = random.of([3, 10]);
  return {
    subject: "PostgreSQL",
    name: `end all connections of PostgreSQL ${times} times`,
    async run() {
      for (let time = 0; time < times; time++) {
        const sql = `select pg_terminate_backend(pid) from pg_stat_activity
          where pid <> pg_backend_pid() and backend_type = 'client backend'`;
        // PostgreSQL may be starting.
        await store.sql(sql).catch(() => {});
        await delay(200);
      }
    },
  };
};

const slow: FaultKind = ({ network: { storeWire } }, random) => {
  const [latency, length] = [random.of([40, 200, 600, 1200]), random.of([2000, 5000])];
  return {
    subject: "store",
    name: `slow the link to the store by ${latency} ms each way for ${seconds(length)}`,
    async run() {
      storeWire.delayMs = latency;
      await delay(length);
      storeWire.delayMs = 0;
    },
  };
};

const stall: FaultKind = ({ postgres }, random) => {
  if (postgres === undefined) return undefined;
  const length = random.of(DURATIONS_MS);
  return {
    subject: "PostgreSQL",
    name: `suspend PostgreSQL for ${seconds(length)}`,
    async run() {
      const all = postgres.signal("SIGSTOP");
      await delay(length);
      for (const pid of all) if (isAlive(pid)) process.kill(pid, "SIGCONT");
    },
  };
};

const repool: FaultKind = ({ pooler }, random) => {
  if (pooler === undefined) return undefined;
  const length = random.of([200, 2500]);
  return {
    subject: "PgBouncer",
    name: `kill PgBouncer, start it after ${seconds(length)}`,
    async run() {
      await pooler.program.stop("SIGKILL");
      await delay(length);
      pooler.program.start();
    },
  };
};

export const faultKinds: Readonly<Record<string, FaultKind>> = {
  "cut-store": cutting(["store"]),
  "cut-clients": cutting(["clients"]),
  "cut-both": cutting(["store", "clients"]),
  pause,
  jump,
  end,
  crash,
  terminate,
  slow,
  stall,
  repool,
};
