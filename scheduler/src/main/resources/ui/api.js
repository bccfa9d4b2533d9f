// Reads objects of the API group that serves this page: a list in pages, then a watch. The API server authenticates the
// user of the browser and decides what it answers, so a 403 is an ordinary case.

/** The group's address; the page is a file of its resource "ui". */
const ROOT = new URL('..', document.baseURI).href;

const PAGE = 500;
const USAGE_PERIOD = 15_000;
const FORBIDDEN_PERIOD = 60_000;
/** So many objects can be listed for their usage each period; more take longer. */
const OBJECTS_PER_USAGE_PERIOD = 5000;
const FORGET_AFTER = 300_000;
/** Bookmarks come every 30 s; a watch without any is dead. */
const WATCH_SILENCE = 90_000;
const REQUEST_TIMEOUT = 30_000;
const LONGEST_BACKOFF = 15_000;
/** Between two redraws of few and of many objects. */
const NOTIFY_PERIOD = 100;
const NOTIFY_PERIOD_OF_MANY = 500;
const MANY = 1000;
/** A hidden window ends its watches, because a browser opens six connections to one HTTP/1.1 server at most. */
const HIDDEN_GRACE = 20_000;
/** Watches of all windows together; two connections stay free for other requests. */
const WATCH_SLOTS = 4;
const LINES_AT_ONCE = 100;

class ApiError extends Error {
  /** @param causes the parts of the reason, such as why a field is refused */
  constructor(status, message, causes = []) {
    super(message);
    this.status = status;
    this.causes = causes;
  }

  get isForbidden() {
    return this.status === 401 || this.status === 403;
  }

  /** Whether the API itself is away, as opposed to an answer about this request. */
  get isAway() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

const pause = (millis, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, millis);
    signal?.addEventListener('abort', () => (clearTimeout(timer), resolve()), { once: true });
  });

/** Lets the browser paint and handle input before the next piece of work. */
const breathe = () => (globalThis.scheduler?.yield ? scheduler.yield() : new Promise((resolve) => setTimeout(resolve)));

/** Whether the API answers, for the banner. */
export const connection = {
  away: null,
  answeredAt: null,
  listeners: new Set(),
  answered() {
    this.answeredAt = new Date();
    this.set(null);
  },
  failed(error) {
    if (error.isAway) this.set({ message: error.message, since: this.away?.since ?? new Date() });
  },
  set(away) {
    const changed = away?.message !== this.away?.message || !away !== !this.away;
    this.away = away;
    if (changed) this.listeners.forEach((listener) => listener());
  },
};

export function address(path, params = {}) {
  const url = new URL(path, ROOT);
  for (const [name, value] of Object.entries(params)) if (value) url.searchParams.set(name, value);
  return url;
}

async function open(path, params, options) {
  let response;
  try {
    response = await fetch(address(path, params), { cache: 'no-store', ...options });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    const late = error.name === 'TimeoutError';
    throw new ApiError(0, late ? 'no answer of the API server' : 'no connection to the API server');
  }
  if (response.ok) return response;
  const text = await response.text();
  let message = text.trim().slice(0, 300);
  let causes = [];
  try {
    const status = JSON.parse(text);
    message = status.message ?? message;
    causes = (status.details?.causes ?? []).map((cause) => String(cause.message));
  } catch {
    // not a Status: the answer of a proxy in front of the API server
  }
  throw new ApiError(response.status, String(message || `the API server answers ${response.status}`), causes);
}

/** One request whose failure is the caller's to show. */
export async function request(path, params, { signal, ...options } = {}) {
  const timeout = AbortSignal.timeout(REQUEST_TIMEOUT);
  try {
    const limited = { ...options, signal: signal ? AbortSignal.any([signal, timeout]) : timeout };
    const answer = await (await open(path, params, limited)).json();
    connection.answered();
    return answer;
  } catch (error) {
    if (error instanceof ApiError) connection.failed(error);
    throw error;
  }
}

export const mergePatch = (path, patch, params, signal) =>
  request(path, params, {
    method: 'PATCH',
    headers: { 'Content-Type': 'application/merge-patch+json' },
    body: JSON.stringify(patch),
    signal,
  });

export const sharePath = (namespace, name, below = '') =>
  `namespaces/${encodeURIComponent(namespace)}/gpushares/${encodeURIComponent(name)}${below}`;

const keyOf = (object) =>
  object.metadata.namespace ? `${object.metadata.namespace}/${object.metadata.name}` : object.metadata.name;

/** Runs an operation with a slot for a watch; without one if other windows hold them all. */
function withWatchSlot(operation, other, slot = 0) {
  if (!navigator.locks || slot === WATCH_SLOTS) return navigator.locks ? other() : operation();
  return navigator.locks.request(`aliquot-watch-${slot}`, { ifAvailable: true }, (lock) =>
    lock ? operation() : withWatchSlot(operation, other, slot + 1),
  );
}

/** The objects of one list, kept current while it has subscribers. What was read stays when the API goes away. */
class Collection {
  items = new Map();
  /** Grows with every change of the items. */
  version = 0;
  complete = false;
  error = null;
  #path;
  #params;
  #position = null;
  #listeners = new Set();
  #run = null;
  #timer = null;
  /** When all figures were read last. */
  #figuresAt = 0;

  constructor(path, params = {}) {
    this.#path = path;
    this.#params = params;
  }

  subscribe(listener) {
    this.#listeners.add(listener);
    this.#start();
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size > 0) return;
      this.#stop();
      setTimeout(() => this.#listeners.size === 0 && forget(this), FORGET_AFTER);
    };
  }

  #start() {
    if (this.#run || hidden || this.#listeners.size === 0) return;
    this.#run = new AbortController();
    this.#keepCurrent(this.#run.signal);
  }

  #stop() {
    this.#run?.abort();
    this.#run = null;
  }

  visibilityChanged() {
    if (hidden) this.#stop();
    else this.#start();
  }

  #changed() {
    this.version++;
    const period =
      this.items.size <= PAGE && !this.complete ? 0 : this.items.size < MANY ? NOTIFY_PERIOD : NOTIFY_PERIOD_OF_MANY;
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      this.#listeners.forEach((listener) => listener());
    }, period);
  }

  async #keepCurrent(signal) {
    this.#refreshUsage(signal);
    let backoff = 500;
    while (!signal.aborted) {
      try {
        if (this.#position === null) await this.#list(signal);
        backoff = 500;
        await withWatchSlot(
          () => this.#watch(signal),
          () => pause(USAGE_PERIOD, signal).then(() => (this.#position = null)),
        );
      } catch (error) {
        if (signal.aborted) return;
        if (error.status === 410) {
          this.#position = null;
          await pause(500, signal);
        } else {
          if (!error.isAway) {
            this.#position = null;
            this.error = error;
            this.#changed();
          }
          await pause(error.isAway ? backoff * (0.75 + Math.random() / 2) : FORBIDDEN_PERIOD, signal);
          backoff = Math.min(LONGEST_BACKOFF, backoff * 2);
        }
      }
    }
  }

  async #pages(signal, take) {
    let next;
    do {
      const page = await request(this.#path, { ...this.#params, limit: PAGE, continue: next }, { signal });
      await breathe();
      take(page);
      await breathe();
      next = page.metadata.continue;
    } while (next);
  }

  async #list(signal) {
    const listed = new Map();
    let position = null;
    await this.#pages(signal, (page) => {
      position ??= page.metadata.resourceVersion; // of the first page: what changes meanwhile comes with the watch
      for (const object of page.items) {
        listed.set(keyOf(object), object);
        if (!this.complete) this.items.set(keyOf(object), object);
      }
      if (!this.complete) this.#changed();
    });
    this.items = listed;
    this.#position = position;
    this.complete = true;
    this.error = null;
    this.#figuresAt = Date.now();
    this.#changed();
  }

  async #watch(signal) {
    const silence = new AbortController();
    const stop = () => silence.abort();
    signal.addEventListener('abort', stop);
    let alarm = setTimeout(stop, REQUEST_TIMEOUT);
    let opened = false;
    try {
      const params = { ...this.#params, watch: 'true', allowWatchBookmarks: 'true', resourceVersion: this.#position };
      const response = await open(this.#path, params, { signal: silence.signal });
      opened = true;
      connection.answered();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = '';
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(alarm);
        alarm = setTimeout(stop, WATCH_SILENCE);
        const lines = (rest + value).split('\n');
        rest = lines.pop();
        for (let at = 0; at < lines.length; at++) {
          if (lines[at]) this.#apply(JSON.parse(lines[at]));
          if (at % LINES_AT_ONCE === LINES_AT_ONCE - 1) await breathe();
        }
      }
    } catch (error) {
      if (signal.aborted || (opened && silence.signal.aborted)) return;
      const failure = error instanceof ApiError ? error : new ApiError(0, 'the connection to the API server broke');
      connection.failed(failure);
      throw failure;
    } finally {
      clearTimeout(alarm);
      signal.removeEventListener('abort', stop);
    }
  }

  #apply({ type, object }) {
    if (type === 'ERROR') throw new ApiError(object.code ?? 500, String(object.message));
    // An event of a GPU can have its Node's version, which is older than those of events before it.
    this.#position = String(Math.max(Number(this.#position), Number(object.metadata.resourceVersion)));
    if (type === 'BOOKMARK') return;
    if (type === 'DELETED') this.items.delete(keyOf(object));
    else this.items.set(keyOf(object), object);
    this.#changed();
  }

  /** Changes of usage cause no event of a watch. */
  async #refreshUsage(signal) {
    for (;;) {
      const period = USAGE_PERIOD * Math.max(1, this.items.size / OBJECTS_PER_USAGE_PERIOD);
      await pause(Math.max(NOTIFY_PERIOD, this.complete ? this.#figuresAt + period - Date.now() : period), signal);
      if (signal.aborted) return;
      if (!this.complete || this.error || connection.away) continue;
      this.#figuresAt = Date.now();
      try {
        await this.#pages(signal, (page) => {
          for (const object of page.items) {
            const known = this.items.get(keyOf(object));
            if (known?.metadata.uid === object.metadata.uid) this.items.set(keyOf(object), withUsage(known, object));
          }
          this.#changed();
        });
      } catch {
        // the banner says it; the next time comes
      }
    }
  }
}

/** A known object, which the watch may have brought up to date meanwhile, with the figures of a listed one. */
function withUsage(known, listed) {
  const status = {
    ...known.status,
    usage: listed.status.usage,
    strandedMemoryMiB: listed.status.strandedMemoryMiB,
  };
  if (known.status.containers) {
    const parts = new Map();
    for (const container of listed.status.containers)
      for (const part of container.gpus) parts.set(`${container.name}/${part.uuid}`, part.usage);
    status.containers = known.status.containers.map((container) => ({
      ...container,
      gpus: container.gpus.map((part) => ({ ...part, usage: parts.get(`${container.name}/${part.uuid}`) })),
    }));
  }
  return { ...known, status };
}

const collections = new Map();

/** The collection of a list; the same one for the same parameters, so that views share what was read. */
export function collection(path, params = {}) {
  const key = address(path, params).href;
  if (!collections.has(key)) collections.set(key, new Collection(path, params));
  return collections.get(key);
}

function forget(one) {
  for (const [key, known] of collections) if (known === one) collections.delete(key);
}

let hidden = document.hidden;
let hiding = null;
document.addEventListener('visibilitychange', () => {
  clearTimeout(hiding);
  hiding = setTimeout(
    () => {
      hidden = document.hidden;
      collections.forEach((one) => one.visibilityChanged());
    },
    document.hidden ? HIDDEN_GRACE : 0,
  );
});
