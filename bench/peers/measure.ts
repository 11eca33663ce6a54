import { load, type Sample } from "../rig/load.ts";
import { type Summary, summarize } from "../rig/statistics.ts";
import { bodyFile, type Scenario, tokenFile } from "./scenarios.ts";
import { LOAD_CORE, leadInSeconds, type System } from "./system.ts";
import type { World } from "./world.ts";

/** More fresh tokens per second than any system can use. */
const FRESH_PER_SECOND = 14_000;

export interface Effort {
  readonly rounds: number;
  /** Of one round of one system. */
  readonly seconds: number;
}

export interface Cost {
  readonly name: string;
  readonly checks: System["checks"];
  /** Microseconds of user and system time per request. */
  readonly cpu: Summary;
  /** Requests per second in a closed loop. */
  readonly rate: Summary;
}

/** @throws Error if the responses are not those of the scenario */
function requireAnswers(system: System, scenario: Scenario, sample: Sample): void {
  const isDenied = scenario.tokens === "denied" && system.algorithm !== undefined;
  const unexpected = isDenied ? sample.requests - sample.refused : sample.refused;
  if (sample.failed + unexpected > 0) {
    const what = `${unexpected} unexpected and ${sample.failed} missing answers`;
    throw new Error(`${system.name}, ${scenario.name}: ${what} of ${sample.requests}`);
  }
}

async function sampleOf(
  system: System,
  scenario: Scenario,
  world: World,
  seconds: number,
): Promise<Sample> {
  const { port, scheme, program, algorithm = "ES256" } = system;
  const tokens = await tokenFile(world, algorithm, scenario.tokens, FRESH_PER_SECOND * seconds);
  const files = { tokenFile: tokens, bodyFile: bodyFile(world, scenario) };
  const { connections, isClosing } = scenario;
  const asked = { port, scheme, connections, isClosing, seconds, ...files, core: LOAD_CORE };
  const sample = await load(program, asked);
  requireAnswers(system, scenario, sample);
  return sample;
}

/**
 * Runs all rounds of one scenario. The systems take turns in each round, so that other load on the machine
 * affects all alike. Each system is warmed up first.
 */
export async function measure(
  scenario: Scenario,
  systems: readonly System[],
  world: World,
  { rounds, seconds }: Effort,
): Promise<Cost[]> {
  const taken = systems.map(({ name, checks }) => ({ name, checks, samples: [] as Sample[] }));
  for (let round = 1; round <= rounds; round++) {
    for (const [at, system] of systems.entries()) {
      await sampleOf(system, scenario, world, leadInSeconds(round));
      taken[at]?.samples.push(await sampleOf(system, scenario, world, seconds));
    }
    console.error(`${scenario.name}: round ${round} of ${rounds}`);
  }
  return taken.map(({ name, checks, samples }) => ({
    name,
    checks,
    cpu: summarize(samples.map(({ cpu }) => cpu)),
    rate: summarize(samples.map(({ rate }) => rate)),
  }));
}
