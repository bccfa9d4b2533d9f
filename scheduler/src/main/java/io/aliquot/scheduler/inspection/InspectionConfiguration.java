package io.aliquot.scheduler.inspection;

import com.github.benmanes.caffeine.cache.Ticker;
import io.aliquot.scheduler.ledger.Ledger;
import org.springframework.boot.web.servlet.FilterRegistrationBean;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

@Configuration(proxyBeanMethods = false)
class InspectionConfiguration {
    @Bean
    AccessControl accessControl(AccessReviews reviews) {
        return new AccessControl(reviews, Ticker.systemTicker());
    }

    @Bean
    ApiMapper apiMapper(Ledger ledger) {
        return new ApiMapper(ledger);
    }

    /** Authenticates every request below /api. Package server accepts these paths on the API's own port only. */
    @Bean
    FilterRegistrationBean<TokenFilter> tokenFilter(AccessControl accessControl) {
        var registration = new FilterRegistrationBean<>(new TokenFilter(accessControl));
        registration.addUrlPatterns("/api/*");
        return registration;
    }
}
