import type { Query } from "../query/query.ts";
import { Refusal } from "../refusal.ts";
import { Backend, type BackendOptions, LoadBalancer, type TargetState } from "./backend.ts";
import { QueryClient } from "./query-client.ts";
import type { StreamForwarder } from "./reverse-proxy.ts";
import type { UpstreamTarget } from "./target.ts";

/** Backends that serve the same databases. */
export interface BackendGroup {
  readonly queries: QueryClient;
  readonly streams: StreamForwarder;
  readonly targets: readonly TargetState[];
  isUp(): Promise<boolean>;
  close(): void;
}

const none: ReadonlySet<Backend> = new Set();

/**
 * Sends streams to the first live backend. They stay on it while it is live, and nothing is sent
 * twice.
 */
function streamsTo(balancer: LoadBalancer<Backend>): StreamForwarder {
  return {
    async forward(stream) {
      const backend = balancer.first() ?? balancer.leastRecentlyFailed(none);
      try {
        await backend?.forward(stream);
      } catch (error) {
        const isFailure = error instanceof Refusal && error.code === "upstream_unreachable";
        if (isFailure) backend?.noteFailure();
        throw error;
      }
    },
  };
}

/**
 * Opens connections to targets that serve the same databases. Starts health checks if there are
 * several.
 */
export function openBackendGroup(
  first: UpstreamTarget,
  others: readonly UpstreamTarget[],
  options: BackendOptions,
): BackendGroup {
  const isSingle = others.length === 0;
  const backends = [first, ...others].map((target) => new Backend(target, isSingle, options));
  return {
    queries: new QueryClient(new LoadBalancer(backends)),
    streams: streamsTo(new LoadBalancer(backends)),
    targets: backends,
    async isUp() {
      const answers = await Promise.all(backends.map((backend) => backend.isUp()));
      return answers.includes(true);
    },
    close() {
      for (const backend of backends) backend.close();
    },
  };
}

const NAMED = 8;

function listed(names: readonly string[]): string {
  const shown = names.slice(0, NAMED).join(", ");
  return names.length > NAMED ? `${shown} and ${names.length - NAMED} more` : shown;
}

/** Maps each database to its backends. */
export class DatabaseRouting {
  readonly #home: BackendGroup;
  readonly #elsewhere: ReadonlyMap<string, BackendGroup>;

  /** @param elsewhere databases with other backends than `home`, by exact name */
  constructor(home: BackendGroup, elsewhere: ReadonlyMap<string, BackendGroup>) {
    this.#home = home;
    this.#elsewhere = elsewhere;
  }

  get isOne(): boolean {
    return this.#elsewhere.size === 0;
  }

  /** @throws Refusal `batch_across_upstreams` if the query's databases are in different groups */
  queriesOf(query: Query): QueryClient {
    if (this.isOne) return this.#home.queries;
    const places = new Set(query.accesses.map(({ database }) => this.#groupOf(database)));
    const [place = this.#home] = places;
    if (places.size <= 1) return place.queries;
    const names = [...new Set(query.accesses.map(({ database }) => database))];
    const message = `A Batch goes to one upstream, and these databases live on several: ${listed(names)}`;
    throw new Refusal("batch_across_upstreams", { message });
  }

  streamsOf(database: string | undefined): StreamForwarder {
    return database === undefined ? this.#home.streams : this.#groupOf(database).streams;
  }

  #groupOf(database: string): BackendGroup {
    return this.#elsewhere.get(database) ?? this.#home;
  }

  get places(): { queries: QueryClient; holds(database: string): boolean }[] {
    return this.#groups.map((group) => ({
      queries: group.queries,
      holds: (database) => this.#groupOf(database) === group,
    }));
  }

  get #groups(): BackendGroup[] {
    return [this.#home, ...new Set(this.#elsewhere.values())];
  }

  get targets(): TargetState[] {
    return this.#groups.flatMap(({ targets }) => targets);
  }

  /** The databases that are configured for a target by name. Undefined for the default target. */
  databasesAt(target: TargetState): string[] | undefined {
    if (this.#home.targets.includes(target)) return undefined;
    const here = this.#elsewhere.entries().filter(([, group]) => group.targets.includes(target));
    return here.map(([database]) => database).toArray();
  }

  async isUp(): Promise<boolean> {
    const answers = await Promise.all(this.#groups.map((group) => group.isUp()));
    return !answers.includes(false);
  }
}
