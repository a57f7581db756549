// A page that was opened as a file may not start a worker, and the search of the site is one.
// Then a hidden frame takes its place: it loads the same script and speaks by the same messages.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      const place = new URL(address, location.href)
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const inside = frame.contentWindow
      inside.document.open()
      inside.document.write("<!doctype html><title>search</title><body></body>")
      inside.document.close()
      const said = (data) => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        if (this.onmessage) this.onmessage(event)
      }
      const load = (url) => new Promise((done, failed) => {
        const script = inside.document.createElement("script")
        script.src = new URL(url, place).href
        script.onload = done
        script.onerror = failed
        inside.document.body.appendChild(script)
      })
      inside.postMessage = said
      inside.importScripts = (...urls) => urls.reduce((last, url) => last.then(() => load(url)), Promise.resolve())
      this.frame = frame
      this.ready = load(place.href)
    }
    postMessage(data) {
      this.ready.then(() => {
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }))
      }).catch(() => {})
    }
    terminate() {
      this.frame.remove()
    }
  }
}
