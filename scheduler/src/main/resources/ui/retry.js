// Loads the page again when one of its files did not arrive: the API was away, or the browser has dropped its requests
// because the machine changed its network. Without that the page would stay empty.
(() => {
  const PERIOD = 2000;
  let waits = false;

  async function reload() {
    try {
      const answer = await fetch(location.href, { method: 'HEAD', cache: 'no-store', signal: AbortSignal.timeout(10_000) });
      if (answer.ok) return location.reload();
    } catch {
      // not yet
    }
    setTimeout(reload, PERIOD);
  }

  // The error of an element does not bubble, so it is seen on its way down; that of a script has another target.
  addEventListener(
    'error',
    ({ target }) => {
      if (waits || !(target instanceof HTMLLinkElement || target instanceof HTMLScriptElement)) return;
      waits = true;
      const app = document.getElementById('app');
      if (app && !app.firstChild) app.textContent = 'A file of this page did not arrive. The page tries again.';
      setTimeout(reload, PERIOD);
    },
    true,
  );
})();
