import { explain, FAILURE, print, printJson, reportFailure, warn } from "./output.ts";

/** A part of what a start reads: in order, or not there yet, which a start or a revocation mends. */
type PartState = "ok" | "absent";

/** What `gatehouse config check` finds: told line by line, or kept to be told as JSON. */
export interface CheckReport {
  part(name: string, state: PartState, text: string): void;
  warn(sentence: string): void;
  /** What stops a start; the exit status says so too. */
  fail(error: unknown): void;
  /** Called when all has been checked. */
  end(): void;
}

/** How wide the names of parts are. */
const NAME_WIDTH = 14;

const words = { ok: "ok", absent: "--" };

const reportForPeople: CheckReport = {
  part: (name, state, text) => print(`${name.padEnd(NAME_WIDTH)} ${words[state]}  ${text}`),
  warn,
  fail: reportFailure,
  end() {},
};

function reportForScripts(): CheckReport {
  const [parts, warnings, errors]: [object[], string[], string[]] = [[], [], []];
  return {
    part: (part, state, text) => void parts.push({ part, state, text }),
    warn: (sentence) => void warnings.push(sentence),
    fail: (error) => void errors.push(...explain(error).split("\n")),
    end() {
      printJson({ ok: errors.length === 0, errors, warnings, parts });
      if (errors.length > 0) process.exitCode = FAILURE;
    },
  };
}

/** The report that the options ask for. */
export function openReport({ json }: { readonly json?: true }): CheckReport {
  return json ? reportForScripts() : reportForPeople;
}
