import type { Configuration } from "../config/schema.ts";
import { Refusal } from "../refusal.ts";
import type { Router } from "./route.ts";

/**
 * What an upstream might read as another path: empty and dot segments, parameters of segments, and
 * separators, dots, control characters and percent signs in their encoded form.
 */
const ambiguous =
  /\/\/|\/\.{1,2}(?:\/|$)|[;\\#]|%(?:2[ef]|3b|5c|[01][0-9a-f]|7f|25[0-9a-f]{2})|[^!-~]/i;
/** All that an upstream might take for the end of a path's first segment. */
const separator = /[/;\\#]|%2f|%5c/i;

/** True for a spelling of a path that an upstream might read as another path. */
export function isAmbiguous(path: string): boolean {
  if (ambiguous.test(path)) return true;
  try {
    // Not every reader takes half an encoding, or one that is no UTF-8, for the same.
    decodeURIComponent(path);
    return false;
  } catch {
    return true;
  }
}

/**
 * Refuses odd spellings of paths below configured routes, also those that fit no route as they
 * stand: an upstream or a proxy might read them as one that does.
 *
 * @throws Refusal `path_not_canonical`, from the router that is returned
 */
export function refuseAmbiguousPaths(router: Router, routes: Configuration["routes"]): Router {
  const roots = new Set(routes.map(({ path }) => path.split("/")[1]));
  return (path) => {
    const match = router(path);
    if (match !== undefined || !isAmbiguous(path)) return match;
    const [root] = path.slice(1).split(separator);
    if (roots.has(root)) throw new Refusal("path_not_canonical");
    return undefined;
  };
}
