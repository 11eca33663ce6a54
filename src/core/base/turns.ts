/** Runs tasks one at a time, in order. A task that fails does not stop those after it. */
export class Turns {
  #last: Promise<unknown> = Promise.resolve();

  run<Result>(task: () => Promise<Result>): Promise<Result> {
    const turn = this.#last.then(task);
    this.#last = turn.catch(() => {});
    return turn;
  }

  /** Resolves when the tasks so far have ended. */
  async end(): Promise<void> {
    await this.#last;
  }
}
